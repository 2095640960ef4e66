"""What a keeper does with its copies: it gives them out while their home is gone, and no longer.

It decides with `serving`, and does with `nsqd.engine.carried`. What takes long is a job: the driver runs what
:meth:`Carrier.tick` gives, in any thread, and hands each back to :meth:`Carrier.ended`. No socket, no clock.
"""

from collections.abc import Callable, Container, Iterator
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
from nsqd.replication.ranks import HOME, Rank, given_out, may_go
from nsqd.replication.serving import TELL_EVERY_NS, CopyPhase, Serving
from nsqd.replication.successors import Successors

_AGAIN_NS: Final = 5_000_000_000


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
        """*tell* hears one sentence of everything that begins or ends, *warn* of what fails."""
        self.broker = broker
        self.carry_after_ns = carry_after_ns
        self._copies = copies
        self._opens = opens
        self._tell = tell
        self._warn = warn or tell
        self._known: dict[bytes, dict[Rank, CarriedCopy]] = {}
        self._here: set[bytes] = set()
        # Homes that are here, and have other keepers by now.
        self._visitors: set[bytes] = set()
        self._holdings: dict[bytes, Holdings] = {}
        # The appointments that homes which are here write to.
        self._today: dict[bytes, Rank] = {}
        # Homes that are gone for good: their logs were handed over to this node.
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
        """Find the copies that there are. Raises OSError."""
        for identity in self._copies.identities():
            self.inherited.look(identity)
            self._look_at(identity, now_ns)

    def _look_at(self, identity: bytes, now_ns: int) -> None:
        self.fellows.look(identity)
        known = self._known.setdefault(identity, {})
        if identity in self.inherited:
            # Nobody comes back whom it would be given time.
            now_ns -= self.carry_after_ns
        for appointment in self._copies.appointments(identity):
            if appointment not in known and self._copies.topics(identity, appointment):
                serving = Serving(appointment, self.carry_after_ns, now_ns)
                if identity in self._here:
                    serving.home_came()
                known[appointment] = CarriedCopy(identity, serving)
        newest = max(known, default=0)
        for appointment, one in known.items():
            one.serving.stale = appointment < newest

    def of(self, identity: bytes) -> list[CarriedCopy]:
        """The copies of one home, the highest first."""
        known = self._known.get(identity, {})
        return [known[rank] for rank in sorted(known, reverse=True)]

    # --- the home ---

    def came(self, identity: bytes, now_ns: int, *, visit: bool = False, by_keeper: bool = False) -> None:
        """The home is here, or a keeper that speaks for it, and is about to name its topics. Raises OSError.

        A *visit* is of one that has other keepers by now: all that is here of it is older.
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
            # Whatever was not needed without it is looked at once more with it.
            one.troubles, one.needless = {}, False
            if one.phase is CopyPhase.CARRIED:
                # Also of an older copy: what the home lacks of it is found out while nobody is given any.
                self._stop(one)

    def went(self, identity: bytes, now_ns: int, *, for_good: bool = False) -> None:
        """The connection is gone; *for_good*: the home has said that it leaves, and is not waited for."""
        try:
            # It has begun copies since it came.
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
        """Give out again what was kept back for a home that has gone again."""
        if one.phase is CopyPhase.RETURNING:
            one.serving.go(CopyPhase.CARRIED)
            self.allow(one.identity)

    def is_released(self, identity: bytes) -> bool:
        """Whether the home may go on with its copy."""
        return all(one.phase is CopyPhase.KEPT and not one.busy for one in self.of(identity))

    def left_over(self, identity: bytes) -> list[CarriedCopy]:
        """Copies that a home that is here does not write to: it may lack something that is in them."""
        if identity not in self._here:
            return []
        today = HOME if identity in self._visitors else self._today.get(identity, 0)
        return [one for one in self.of(identity) if one.serving.appointment < today]

    def began(self, identity: bytes, appointment: int) -> None:
        """The home goes on in the copy of that appointment; those before it are older ones."""
        self._today[identity] = appointment

    def answered(self, identity: bytes, holdings: Holdings) -> None:
        """The home has told what it has, and all of that its keepers of today have too."""
        before = self._holdings.get(identity)
        holdings.serial = 1 if before is None else before.serial + 1
        self._holdings[identity] = holdings
        for one in self.left_over(identity):
            if one.phase is CopyPhase.CARRIED and not one.busy:
                self._give_the_rest(one)

    def _give_the_rest(self, one: CarriedCopy) -> None:
        """Of an older copy give out what the home has not; it goes when nobody is owed any such thing."""
        holdings = self._holdings[one.identity]
        one.looked_at = holdings.serial
        owed: Ranges = []
        for name, topic in one.topics.items():
            self.learn(topic, holdings.finished.get(name, {}), higher=True)
            held = holdings.held.get(name, [])
            higher = [(HOME, held)]
            higher += [
                (other.serving.appointment, self.readable(other.topics[name]))
                for other in self.left_over(one.identity)
                if other is not one
                and name in other.topics
                and other.phase is CopyPhase.CARRIED
                and not other.topics[name].unfounded
            ]
            rank = one.serving.appointment
            carried.allow(self.broker, topic, given_out(rank, self._opens.held(topic), higher))
            owed_here = self._owed_here(topic)
            if not may_go(owed_here, held, held):
                owed += without(owed_here, held)
        if not owed and not one.troubles:
            one.needless = True
            self._stop(one, told=False)

    def _owed_here(self, topic: CarriedTopic) -> Ranges:
        """What was never filled in here nobody gets from here."""
        return facts.within_all(facts.owed_by_any(topic), self.readable(topic))

    def owes_more(self, older: CarriedCopy, newer: CarriedCopy) -> bool:
        """Whether somebody is owed what is in the older copy, and not in the newer one."""
        for name, topic in older.topics.items():
            other = newer.topics.get(name)
            held = [] if other is None or other.unfounded else self.readable(other)
            if not may_go(self._owed_here(topic), held, held):
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
            # While a thread has its files it is left to that, which finds them gone.
            topic = None if one.busy else one.topics.pop(name, None)
            if topic is not None:
                carried.detach(self.broker, topic, force=True)
                with suppress(OSError):
                    self._opens.drop(topic)

    # --- what is done ---

    def tick(self, now_ns: int, hear: Container[bytes]) -> list[CarrierJob]:
        """What is to be done now, by any thread; *hear* are the homes that are ready for the last word."""
        jobs: list[CarrierJob] = []
        for one in list(self):
            if one.busy:
                continue
            if one.phase is CopyPhase.KEPT and one.identity in self._given_away:
                # Put away, or not given out yet when it became another's; perhaps it could not be removed.
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
        """Of a log that was handed over an older copy has little to give: the newest is opened first."""
        if one.identity in self._given_away:
            return True
        if one.identity not in self.inherited:
            return False
        mine = one.serving.appointment
        higher = [other for other in self.of(one.identity) if other.serving.appointment > mine]
        return any(other.phase is not CopyPhase.CARRIED and not other.troubles for other in higher)

    def _let_go(self) -> None:
        """Remove the copies of logs that were handed over to this node, and of which nobody is owed any."""
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
            # The highest last: what is finished is known there.
            done = [one for one in copies[1:] if is_done_with(one)]
            for one in done if len(done) < len(copies) - 1 else copies:
                one.needless = True
                self._stop(one, told=False)

    def give_away(self, identity: bytes) -> None:
        """A log was handed over to another node: its copies here go."""
        self._given_away.add(identity)
        for one in self.of(identity):
            one.needless = True
            if one.phase is CopyPhase.CARRIED:
                self._stop(one, told=False)
        self.inherited.forget(identity)

    def was_given_away(self, identity: bytes) -> bool:
        """Whether it is another's by now."""
        return identity in self._given_away

    def may_be_needed(self, identity: bytes) -> bool:
        """Whether a copy here may have what nobody else has.

        It has not when its home writes to it: that has met it, and has all of it.
        """
        if identity in self._today and not self.left_over(identity):
            return False
        return any(not one.needless for one in self.of(identity))

    # --- topics ---

    def _may_give_the_rest(self, one: CarriedCopy) -> bool:
        """Whether it is an older copy, and its home has told what it has."""
        holdings = self._holdings.get(one.identity)
        if holdings is None or one not in self.left_over(one.identity):
            return False
        if one.phase is CopyPhase.KEPT:
            return one.looked_at != holdings.serial
        return self._lacks_some(one)

    @staticmethod
    def _lacks_some(one: CarriedCopy) -> bool:
        """Whether it is given out but for topics that could not be read."""
        return one.phase is CopyPhase.CARRIED and bool(one.troubles)

    def _open(self, one: CarriedCopy, now_ns: int) -> list[CarrierJob]:
        """Have those of its topics recovered that are not given out yet."""
        folders = {}
        try:
            for name in self._copies.topics(one.identity, one.serving.appointment):
                if name in one.topics:
                    continue
                folder = self._copies.folder(one.identity, one.serving.appointment, name)
                # Its files are what a process finds that begins: nobody knows them any more.
                self._copies.forget(folder)
                folders[name] = folder.path
        except OSError as error:
            self._failed(one, {"": str(error)}, now_ns)
            return []
        one.busy = True
        return [OpenCopy(one, folders, self._opens, now_ns)]

    def _failed(self, one: CarriedCopy, troubles: dict[str, str], now_ns: int) -> None:
        """Some of it cannot be read just now; each reason is told once, and it is tried again."""
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
            # What could not be noted of it nobody needs either.
            self._remove(one, now_ns)
            return
        one.needless = False
        if error is not None:
            # The home gives out again what was finished here and could not be noted; it has been told.
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
            # It came back meanwhile, or is another's by now; nobody was given anything.
            self._close_unused(found)
            return
        if not (found or one.topics or rest):
            # Its home has deleted all that was in it.
            self._forget(one)
            return
        self.fellows.begin(one.identity, now_ns)
        one.topics |= found
        if one.phase is CopyPhase.KEPT:
            one.serving.go(CopyPhase.CARRIED)
            one.carried_ns = now_ns
        for topic in found.values():
            if topic.given_up and not facts.owed_by_any(topic):
                # Somebody deleted it here, and its home has written nothing since.
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
        """Put topics away of which nobody was given anything: what cannot be noted of them is no loss."""
        for topic in found.values():
            with suppress(OSError):
                self._opens.close(topic)

    def _meet_here(self, one: CarriedCopy) -> None:
        """Copies of one log at one node learn from each other at once."""
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
        """Another holder has told what is finished."""
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
        """Have each copy give out what no higher one has, here or at another keeper that was reached."""
        for name in sorted({name for one in self.of(identity) for name in one.topics}):
            holders = [
                (one.serving.appointment, self.readable(one.topics[name]))
                for one in self.of(identity)
                if name in one.topics and one.phase is CopyPhase.CARRIED and not one.topics[name].unfounded
            ]
            holders += self.fellows.holders(identity, name)
            for one in self.of(identity):
                if name not in one.topics or one.phase is not CopyPhase.CARRIED:
                    continue
                rank = one.serving.appointment
                mine = given_out(rank, self._opens.held(one.topics[name]), holders)
                whole = not any(other > rank for other, _ in holders)
                if one.leaves or self.fellows.waits(identity, rank):
                    whole, mine = False, []
                carried.allow(self.broker, one.topics[name], None if whole else mine)

    def readable(self, topic: CarriedTopic) -> Ranges:
        """What lower ones leave to this copy."""
        return facts.readable(topic, self._opens.held(topic))

    def held(self, topic: CarriedTopic) -> Ranges:
        """What of it is stored, by number."""
        return self._opens.held(topic)

    def folder_of(self, identity: bytes) -> Path:
        """Where all copies of one home are."""
        return self._copies.folder_of(identity)

    # --- what the home is told ---

    def to_tell(self, identity: bytes, now_ns: int) -> dict[str, list[CarriedTopic]] | None:
        """The topics of which facts are to be told to a home that is back; None when it is not time yet."""
        due = False
        found: dict[str, list[CarriedTopic]] = {}
        for one in self.of(identity):
            if one.phase is not CopyPhase.RETURNING:
                continue
            if now_ns - one.told_ns >= TELL_EVERY_NS or not one.told_ns:
                one.told_ns, due = now_ns, True
            for name, topic in one.topics.items():
                found.setdefault(name, []).append(topic)
        return found if due else None
