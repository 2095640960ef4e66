"""What a keeper does with its copies: it gives them out while their home is gone, and only then.

It decides with `serving`, and acts with `nsqd.engine.carried`. What takes long is a job: the driver runs the
jobs of :meth:`Carrier.tick` in any thread, and hands each back to :meth:`Carrier.ended`. No socket, no clock.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from nsqd.engine import carried, facts
from nsqd.engine.broker import Broker
from nsqd.engine.carried_topic import CarriedTopic
from nsqd.engine.facts import ChannelFacts
from nsqd.log.ranges import Ranges, without
from nsqd.replication.carried_copy import CarriedCopy, CarrierJob, CloseCopy, OpenCopy, OpensCopies
from nsqd.replication.copies import Copies
from nsqd.replication.fellows import KnownFellows
from nsqd.replication.holdings import Holdings
from nsqd.replication.inherited import Inherited, is_done_with
from nsqd.replication.ranks import HOME, Rank, given_out
from nsqd.replication.serving import CopyPhase, Serving
from nsqd.replication.successors import Successors

_AGAIN_NS: Final = 5_000_000_000
# How often a home that is back is told what was finished.
_TELL_EVERY_NS: Final = 1_000_000_000


class Carrier:
    """All copies of a node, and what is given out of them."""

    def __init__(
        self,
        broker: Broker,
        copies: Copies,
        opens: OpensCopies,
        carry_after_ns: int,
        tell: Callable[[str], None],
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """*tell* gets one sentence about everything that begins or ends, *warn* about what fails."""
        self.broker = broker
        self.carry_after_ns = carry_after_ns
        self._copies = copies
        self._opens = opens
        self._tell = tell
        self._warn = warn or tell
        self._known: dict[bytes, dict[Rank, CarriedCopy]] = {}
        self._here: set[bytes] = set()
        # Homes that are here but have other keepers by now.
        self._visitors: set[bytes] = set()
        self._holdings: dict[bytes, Holdings] = {}
        # For each home that is here, the appointment to which it writes.
        self._today: dict[bytes, Rank] = {}
        # Homes that are gone permanently: their logs were handed over to this node.
        self.inherited = Inherited(copies)
        # Logs that this node has handed over to another.
        self._given_away: set[bytes] = set()
        self.fellows = KnownFellows(copies)
        # Keepers in the place of homes that do not come back, and the homes for which this node stands in.
        self.successors = Successors(copies, self._warn)
        self.stood_in: set[bytes] = set()

    def __iter__(self) -> Iterator[CarriedCopy]:
        return (one for known in self._known.values() for one in known.values())

    # --- what there is ---

    def look(self, now_ns: int) -> None:
        """Find the copies that exist. Raises OSError."""
        for identity in self._copies.identities():
            self.inherited.look(identity)
            self._look_at(identity, now_ns)

    def _look_at(self, identity: bytes, now_ns: int) -> None:
        self.fellows.look(identity, self.successors.of(identity))
        known = self._known.setdefault(identity, {})
        for appointment in self._copies.appointments(identity):
            if appointment not in known and self._copies.topics(identity, appointment):
                self._add(identity, appointment, now_ns)
        self._rank(identity)

    def _add(self, identity: bytes, appointment: Rank, now_ns: int) -> None:
        if identity in self.inherited:
            # Its home does not come back, so it is given no time.
            now_ns -= self.carry_after_ns
        serving = Serving(appointment, self.carry_after_ns, now_ns)
        if identity in self._here:
            serving.home_came()
        self._known.setdefault(identity, {})[appointment] = CarriedCopy(identity, serving)

    def _rank(self, identity: bytes) -> None:
        known = self._known[identity]
        newest = max(known, default=0)
        for appointment, one in known.items():
            one.serving.stale = appointment < newest

    def of(self, identity: bytes) -> list[CarriedCopy]:
        """The copies of one home, the highest first."""
        known = self._known.get(identity, {})
        return [known[rank] for rank in sorted(known, reverse=True)]

    # --- the home ---

    def came(self, identity: bytes, now_ns: int, *, visit: bool = False, by_keeper: bool = False) -> None:
        """The home, or a keeper that speaks for it, is here and is about to name its topics. Raises OSError.

        A *visit* is by a home that has other keepers by now: all copies of it here are older ones.
        """
        if not by_keeper:
            self.inherited.came_back(identity)
        self._here.add(identity)
        self._given_away.discard(identity)
        (self._visitors.add if visit else self._visitors.discard)(identity)
        self._holdings.pop(identity, None)
        self._today.pop(identity, None)
        self._look_at(identity, now_ns)
        self.fellows.end(identity)
        for one in self.of(identity):
            one.serving.home_came()
            # What was not needed while the home was away is looked at again now.
            one.troubles, one.needless = {}, False
            if one.phase is CopyPhase.CARRIED:
                # Older copies too: what the home lacks of them is found out while nothing is given out.
                self._stop(one)

    def went(self, identity: bytes, now_ns: int, *, for_good: bool = False) -> None:
        """The connection is gone; *for_good*: the home has said that it leaves, so it is not waited for."""
        try:
            # The home may have begun copies since it came.
            self._look_at(identity, now_ns)
        except OSError as error:
            self._warn(f"CARRIED({identity.hex()[:8]}): failed to look for copies - {error}")
        for_good = for_good or identity in self.inherited
        self._here.discard(identity)
        self._visitors.discard(identity)
        self._holdings.pop(identity, None)
        self._today.pop(identity, None)
        for one in self.of(identity):
            if for_good:
                one.serving.gone_for_good(now_ns)
            else:
                one.serving.home_went(now_ns)
            if not one.busy:
                self._go_on(one)

    def _go_on(self, one: CarriedCopy) -> None:
        """Give out again what was held back for a home that has gone again."""
        if one.phase is CopyPhase.RETURNING:
            one.serving.go(CopyPhase.CARRIED)
            self.allow(one.identity)

    def is_released(self, identity: bytes) -> bool:
        """Whether the home may go on with its copy."""
        return all(one.phase is CopyPhase.KEPT and not one.busy for one in self.of(identity))

    def left_over(self, identity: bytes) -> list[CarriedCopy]:
        """Copies to which a home that is here does not write: they may have something that it lacks."""
        if identity not in self._here:
            return []
        today = HOME if identity in self._visitors else self._today.get(identity, 0)
        return [one for one in self.of(identity) if one.serving.appointment < today]

    def began(self, identity: bytes, appointment: Rank, now_ns: int, *, has_topics: bool) -> None:
        """The home goes on in the copy of that appointment; copies of earlier ones are older.

        Other keepers that ask are told that the home is here, also of a copy that was begun since it came.
        """
        self._today[identity] = appointment
        if has_topics and appointment not in self._known.get(identity, ()):
            self._add(identity, appointment, now_ns)
            self._rank(identity)

    def answered(self, identity: bytes, holdings: Holdings) -> None:
        """The home has told what it has; its keepers of today have all of that too."""
        before = self._holdings.get(identity)
        holdings.serial = 1 if before is None else before.serial + 1
        self._holdings[identity] = holdings
        for one in self.left_over(identity):
            if one.phase is CopyPhase.CARRIED and not one.busy:
                self._give_the_rest(one)

    def _give_the_rest(self, one: CarriedCopy) -> None:
        """Give out what an older copy has and the home has not; it goes when nobody is owed any of that."""
        holdings = self._holdings[one.identity]
        one.looked_at = holdings.serial
        owed: Ranges = []
        for name, topic in one.topics.items():
            self.learn(topic, holdings.finished.get(name, {}), higher=True)
            held = holdings.held.get(name, [])
            higher = [(HOME, held), *self._holders(self.left_over(one.identity), name)]
            rank = one.serving.appointment
            carried.allow(self.broker, topic, given_out(rank, self._opens.held(topic), higher))
            # Not what keepers have counts but what the home has: messages that it lost may be here alone.
            owed += without(self._owed_here(topic), held)
        if not owed and not one.troubles:
            one.needless = True
            self._stop(one, told=False)

    def _owed_here(self, topic: CarriedTopic) -> Ranges:
        """What is owed of the topic and can be read here: what was never filled in is not given out here."""
        return facts.within_all(facts.owed_by_any(topic), self.readable(topic))

    def owes_more(self, older: CarriedCopy, newer: CarriedCopy) -> bool:
        """Whether somebody is owed messages that are in the older copy and not in the newer one."""
        for name, topic in older.topics.items():
            other = newer.topics.get(name)
            held = [] if other is None or other.unfounded else self.readable(other)
            if without(self._owed_here(topic), held):
                return True
        return False

    def _stop(self, one: CarriedCopy, *, told: bool = True) -> None:
        one.serving.go(CopyPhase.RETURNING)
        one.told_ns = 0
        for topic in one.topics.values():
            carried.stop(self.broker, topic)
        if not told:
            return
        self._tell(f"CARRIED({one.identity.hex()[:8]}): the home is back, nothing more is given out here")

    def deleted(self, identity: bytes, name: str) -> None:
        """The home has deleted a topic: nothing more of it is given out, whatever becomes of the home."""
        for one in self.of(identity):
            # While a thread uses its files, it is left to that thread, which finds them gone.
            topic = None if one.busy else one.topics.pop(name, None)
            if topic is not None:
                carried.detach(self.broker, topic, force=True)
                with suppress(OSError):
                    self._opens.drop(topic)

    # --- what is done ---

    def tick(self, now_ns: int, hear: Container[bytes]) -> list[CarrierJob]:
        """Jobs to be run now, in any thread; *hear* are the homes that are ready for the last facts."""
        jobs: list[CarrierJob] = []
        for one in list(self):
            if one.busy:
                continue
            if one.phase is CopyPhase.KEPT and one.identity in self._given_away:
                # It was put away, or was not given out yet, when it became another's. Removing it may fail.
                if now_ns >= one.again_ns:
                    self._remove(one, now_ns)
            elif one.phase is CopyPhase.RETURNING:
                if one.identity not in self._here and not one.needless:
                    self._go_on(one)
                elif (one.identity in hear or one.needless) and not one.in_flight():
                    jobs.append(self._close(one))
            elif one.identity in self._here:
                if now_ns >= one.again_ns and self._may_give_the_rest(one):
                    jobs += self._open(one, now_ns)
            elif (
                now_ns >= one.again_ns
                and (one.serving.should_carry(now_ns) or self._lacks_some(one))
                and not self._waits_for_higher(one)
            ):
                jobs += self._open(one, now_ns)
        if self.inherited.may_look(now_ns):
            self._let_go()
        return jobs

    # --- what was handed over ---

    def _waits_for_higher(self, one: CarriedCopy) -> bool:
        """An older copy of a log that was handed over has little to give: the newest is opened first."""
        if one.identity in self._given_away:
            return True
        if one.identity not in self.inherited:
            return False
        mine = one.serving.appointment
        higher = [other for other in self.of(one.identity) if other.serving.appointment > mine]
        return any(other.phase is not CopyPhase.CARRIED and not other.troubles for other in higher)

    def _let_go(self) -> None:
        """Remove copies of logs that were handed over to this node and of which nobody is owed anything."""
        for identity in [identity for identity in self._known if identity in self.inherited]:
            copies = self.of(identity)
            if not copies or any(one.busy or one.phase is not CopyPhase.CARRIED for one in copies):
                continue
            highest = copies[0]
            if not is_done_with(highest):
                continue
            for lower in copies[1:]:
                for name in sorted(lower.topics.keys() & highest.topics.keys()):
                    self._unite(lower.topics[name], highest.topics[name], higher=True)
            # The highest copy goes last, because it has the facts about what is finished.
            done = [one for one in copies[1:] if is_done_with(one)]
            for one in done if len(done) < len(copies) - 1 else copies:
                one.needless = True
                self._stop(one, told=False)

    def give_away(self, identity: bytes) -> None:
        """A log was handed over to another node: remove its copies here."""
        self._given_away.add(identity)
        for one in self.of(identity):
            one.needless = True
            if one.phase is CopyPhase.CARRIED:
                self._stop(one, told=False)
        self.inherited.forget(identity)

    def was_given_away(self, identity: bytes) -> bool:
        """Whether the log is another node's by now."""
        return identity in self._given_away

    def may_be_needed(self, identity: bytes) -> bool:
        """Whether a copy here may have something that nobody else has.

        A copy that its home writes to has nothing of that kind: the home has met it and has all of it.
        """
        if identity in self._today and not self.left_over(identity):
            return False
        return any(not one.needless for one in self.of(identity))

    # --- topics ---

    def _may_give_the_rest(self, one: CarriedCopy) -> bool:
        """Whether it is an older copy whose home has told what it has."""
        holdings = self._holdings.get(one.identity)
        if holdings is None or one not in self.left_over(one.identity):
            return False
        if one.phase is CopyPhase.KEPT:
            return one.looked_at != holdings.serial
        return self._lacks_some(one)

    @staticmethod
    def _lacks_some(one: CarriedCopy) -> bool:
        """Whether it is given out except for topics that could not be read."""
        return one.phase is CopyPhase.CARRIED and bool(one.troubles)

    def _open(self, one: CarriedCopy, now_ns: int) -> list[CarrierJob]:
        """A job that recovers those of its topics that are not given out yet."""
        folders = {}
        try:
            for name in self._copies.topics(one.identity, one.serving.appointment):
                if name in one.topics:
                    continue
                folder = self._copies.folder(one.identity, one.serving.appointment, name)
                # Its files are to be read as a new process reads them, without what is known of them.
                self._copies.forget(folder)
                folders[name] = folder.path
        except OSError as error:
            self._failed(one, {"": str(error)}, now_ns)
            return []
        one.busy = True
        return [OpenCopy(one, folders, self._opens, now_ns)]

    def _failed(self, one: CarriedCopy, troubles: dict[str, str], now_ns: int) -> None:
        """Some of it cannot be read now; tell each reason once, and try again later."""
        one.again_ns = now_ns + _AGAIN_NS
        for name, reason in troubles.items():
            if one.troubles.get(name) != reason:
                what = f"topic {name} of the copy" if name else "the copy"
                self._warn(f"CARRIED({one.identity.hex()[:8]}): {what} cannot be given out - {reason}")
        one.troubles = troubles

    def _close(self, one: CarriedCopy) -> CloseCopy:
        one.busy = True
        # What was answered since is told, too.
        one.told_ns = 0
        topics = list(one.topics.values())
        for topic in topics:
            carried.detach(self.broker, topic)
        return CloseCopy(one, topics, self._opens)

    def ended(self, job: CarrierJob, error: Exception | None, now_ns: int) -> None:
        """A job has run, or failed."""
        one = job.copy
        one.busy = False
        if isinstance(job, CloseCopy):
            self._put_away(one, error, now_ns)
        elif error is not None:
            self._failed(one, {"": str(error)}, now_ns)
            self._close_unused(job.found)
        else:
            self._failed(one, job.failed, now_ns)
            if job.found or not job.failed:
                self._give_out(one, job.found, now_ns)

    def _put_away(self, one: CarriedCopy, error: Exception | None, now_ns: int) -> None:
        one.topics, one.troubles = {}, {}
        one.serving.go(CopyPhase.KEPT)
        given = one.identity in self.inherited or one.identity in self._given_away
        if one.needless and (given or one.identity in self._here):
            # Facts that could not be noted are not needed either.
            self._remove(one, now_ns)
            return
        one.needless = False
        if error is not None:
            # The home has been told what was finished here; what could not be noted may be given out again.
            self._warn(f"CARRIED({one.identity.hex()[:8]}): failed to note what was finished - {error}")

    def _remove(self, one: CarriedCopy, now_ns: int) -> None:
        try:
            self._copies.remove(one.identity, one.serving.appointment)
        except OSError as error:
            one.needless, one.again_ns = False, now_ns + _AGAIN_NS
            self._warn(f"CARRIED({one.identity.hex()[:8]}): failed to remove an older copy - {error}")
            return
        self._forget(one)
        self._tell(
            f"CARRIED({one.identity.hex()[:8]}): the copy of appointment {one.serving.appointment} is not"
            " needed any more, and is removed"
        )

    def _forget(self, one: CarriedCopy) -> None:
        one.serving.go(CopyPhase.GONE)
        del self._known[one.identity][one.serving.appointment]

    def _give_out(self, one: CarriedCopy, found: dict[str, CarriedTopic], now_ns: int) -> None:
        rest = one in self.left_over(one.identity) and one.identity in self._holdings
        came = one.identity in self._here and not rest
        if came or one.phase is CopyPhase.RETURNING or one.identity in self._given_away:
            # The home came back meanwhile, or the log is another's by now; nothing was given out.
            self._close_unused(found)
            return
        if not (found or one.topics or rest):
            # Its home has deleted all topics that were in it.
            self._forget(one)
            return
        self.fellows.begin(one.identity, now_ns)
        one.topics |= found
        if one.phase is CopyPhase.KEPT:
            one.serving.go(CopyPhase.CARRIED)
            one.carried_ns = now_ns
        for topic in found.values():
            if topic.given_up and not facts.owed_by_any(topic):
                # It was deleted here, and its home has written nothing since.
                continue
            topic.given_up = False
            carried.attach(self.broker, topic, now_ns, [])
        self._meet_here(one)
        if rest:
            self._give_the_rest(one)
            return
        self.allow(one.identity)
        owed = sum(channel.depth for topic in found.values() for channel in topic.channels.values())
        self._tell(
            f"CARRIED({one.identity.hex()[:8]}): the home is gone, {len(found)} topics are given out here,"
            f" {owed} messages wait"
        )

    def _close_unused(self, found: dict[str, CarriedTopic]) -> None:
        """Put topics away of which nothing was given out: facts that cannot be noted of them are no loss."""
        for topic in found.values():
            with suppress(OSError):
                self._opens.close(topic)

    def _meet_here(self, one: CarriedCopy) -> None:
        """Let the copies of one log at this node learn from each other."""
        for other in self.of(one.identity):
            if other is one or other.phase is not CopyPhase.CARRIED:
                continue
            for name in sorted(one.topics.keys() & other.topics.keys()):
                self._unite(
                    one.topics[name],
                    other.topics[name],
                    higher=other.serving.appointment > one.serving.appointment,
                )
                self._unite(
                    other.topics[name],
                    one.topics[name],
                    higher=other.serving.appointment < one.serving.appointment,
                )

    def _unite(self, topic: CarriedTopic, other: CarriedTopic, *, higher: bool) -> None:
        if not other.unfounded:
            self.learn(topic, facts.all_facts(other), higher=higher)

    def learn(self, topic: CarriedTopic, known: dict[str, ChannelFacts], *, higher: bool) -> None:
        """Learn what another holder has told to be finished."""
        higher = higher or topic.unfounded
        topic.unfounded = topic.unfounded and not known
        for channel, told in known.items():
            carried.learn(
                self.broker, topic, channel, told, higher=higher, stored=lambda: self._opens.held(topic)
            )

    def is_here(self, identity: bytes) -> bool:
        """Whether the home is connected."""
        return identity in self._here

    def allow(self, identity: bytes) -> None:
        """Let each copy give out what no higher one has, here or at another keeper that was reached."""
        waiting = {one.serving.appointment for one in self.of(identity) if one.leaves or self.waits(one)}
        for name in sorted({name for one in self.of(identity) for name in one.topics}):
            holders = self._holders(self.of(identity), name)
            holders += self.fellows.holders(identity, name)
            for one in self.of(identity):
                if name not in one.topics or one.phase is not CopyPhase.CARRIED:
                    continue
                rank = one.serving.appointment
                mine = given_out(rank, self._opens.held(one.topics[name]), holders)
                whole = not any(other > rank for other, _ in holders)
                if rank in waiting:
                    whole, mine = False, []
                carried.allow(self.broker, one.topics[name], None if whole else mine)

    def waits(self, one: CarriedCopy) -> bool:
        """Whether a copy must wait for other keepers of its home, before anything of it is given out."""
        rank = one.serving.appointment
        return self.fellows.waits(one.identity, rank, self.successors.numbers(one.identity))

    def _holders(self, copies: Iterable[CarriedCopy], name: str) -> list[tuple[Rank, Ranges]]:
        """The copies that give out a topic: the rank of each, and what can be read in it."""
        return [
            (one.serving.appointment, self.readable(topic))
            for one in copies
            if one.phase is CopyPhase.CARRIED
            and (topic := one.topics.get(name)) is not None
            and not topic.unfounded
        ]

    def readable(self, topic: CarriedTopic) -> Ranges:
        """The messages of this copy that can be read here: lower copies do not give them out."""
        return facts.readable(topic, self._opens.held(topic))

    def held(self, topic: CarriedTopic) -> Ranges:
        """The sequences of the topic that are stored."""
        return self._opens.held(topic)

    def folder_of(self, identity: bytes) -> Path:
        """Where all copies of one home are."""
        return self._copies.folder_of(identity)

    # --- what the home is told ---

    def to_tell(self, identity: bytes, now_ns: int) -> dict[str, list[CarriedTopic]] | None:
        """The topics whose facts are to be told to a home that is back; None when it is not time yet."""
        due = False
        found: dict[str, list[CarriedTopic]] = {}
        for one in self.of(identity):
            if one.phase is not CopyPhase.RETURNING:
                continue
            if now_ns - one.told_ns >= _TELL_EVERY_NS or not one.told_ns:
                one.told_ns, due = now_ns, True
            for name, topic in one.topics.items():
                found.setdefault(name, []).append(topic)
        return found if due else None
