"""Positions and single messages in the random work: channels are set to a position or created there, and an
operator acts on one message.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.campaign.ledger import Deed
from tests.campaign.model import NEVER, Channel, Fact, Topic
from tests.campaign.node import KEEPS, RETAIN_NS
from tests.campaign.places import CHANNELS, MILLISECOND, TOPICS

if TYPE_CHECKING:
    from tests.campaign.workload import Workload


class Seeks:
    """Sends requests, and tells the model what channels owe that were set to a position or created there."""

    def __init__(self, work: "Workload") -> None:
        self._work = work
        # Pending requests that set a channel to a position or create it there, and what to do then.
        self.placing: dict[tuple[str, str], Callable[[], None]] = {}

    def _some_channel(self) -> tuple[Topic, Channel] | None:
        work = self._work
        work.requests.notice_deleted()
        topic = work.model.topic(work.rng.choice(TOPICS))
        channel = topic.channel(work.rng.choice(CHANNELS)) if topic else None
        if topic is None or channel is None or work.requests.is_leaving(topic):
            return None
        if (topic.name, channel.name) in self.placing:
            return None
        here = work.node.broker.topics.get(topic.name)
        return (topic, channel) if here and channel.name in here.channels else None

    def _answer_to(
        self, what: str, topic: Topic, fact: Fact, channel: Channel | None = None
    ) -> Callable[[bool], None]:
        work = self._work

        def answered(ok: bool) -> None:
            # The topic may have been deleted while files were read.
            self._work.requests.notice_deleted()
            if ok:
                fact.answered = fact.synced = work.position
            elif not work.faulty and topic.exists and (channel is None or channel.exists):
                work.break_off(f"{what} {topic.name} failed")

        return answered

    def made_there(self, name: str, channel_name: str, fact: Fact) -> None:
        """Note that the channel was created just now at a position in the log."""
        work = self._work
        work.requests.notice_deleted()
        topic = work.model.topic(name)
        if topic is None:
            work.break_off(f"{name}/{channel_name} was made, and the topic is gone")
        made = work.model.make_channel(topic, channel_name, fact)
        self._given(topic, made, work.position)
        work.done[Deed.CHANNELS_MADE] += 1

    def _given(self, topic: Topic, made: Channel, position: int) -> None:
        """Note that a channel was created from the earliest: its backlog covers that of others."""
        work = self._work
        work.rules.sought(topic, made, work.node.backlog_of(topic.name, made.name))
        bodies = work.node.pending_bodies(topic.name, made.name, stored=True)
        others = [channel for channel in topic.living if channel is not made]
        pending = {
            body
            for one in others
            # Messages that are published and not stored yet will also go to the new channel.
            for body in one.debts.keys() & work.node.backlog_of(topic.name, one.name).keys()
            if one.debts[body].is_pending(position) and body not in one.mortal and body not in one.returned
        }
        missing = pending - bodies - made.debts.keys()
        if missing and not (work.faulty or work.was_faulty):
            work.break_off(f"{topic.name}/{made.name} from the earliest lacks {min(missing)[:24]!r}")
        # Messages that were finished and dropped, or pending on a former channel, may still be in memory.
        its = {body for body, debt in made.debts.items() if debt.dropped is None}
        remembered = work.node.pending_bodies(topic.name, made.name, stored=False) - bodies - its
        work.done[Deed.FROM_EARLIEST] += 1
        work.done[Deed.GIVEN] += len(bodies | remembered)
        for body in bodies | remembered:
            work.model.give(made, body, position, stays=body in bodies)
        if work.faulty:
            self._perhaps(topic, made, bodies, position)

    def _perhaps(self, topic: Topic, channel: Channel, pending: set[bytes], position: int) -> None:
        """Note that besides *pending* the channel may owe messages that could not be read just now."""
        for message in topic.messages:
            debt = channel.debts.get(message.body)
            if message.body not in pending and (debt is None or debt.dropped is not None):
                self._work.model.give(channel, message.body, position, stays=False)

    async def seek(self) -> None:
        """Set a channel to the earliest, the latest, or one of its pending messages."""
        work = self._work
        found = self._some_channel()
        if found is None:
            return
        topic, channel = found
        log = work.node.broker.topics[topic.name].log
        if log.log_start > log.next_seq:
            return
        pending = sorted(work.node.backlog_of(topic.name, channel.name).values())
        to = work.rng.choice(
            ("earliest", "earliest", "latest", str(work.rng.choice(pending)) if pending else "latest")
        )
        if to.isdecimal() and int(to) < log.log_start:
            return
        work.note(f"seek {topic.name} {channel.name} {to}")
        fact = work.model.fact(work.position)
        arguments = {"topic": topic.name, "channel": channel.name, "to": to}
        heard = self._answer_to("seek", topic, fact, channel)
        place = topic.name, channel.name
        self.placing[place] = partial(self._sought, *place, to, fact)

        def answered(ok: bool) -> None:
            self.placing.pop(place, None)
            heard(ok)

        work.ask("channel/seek", arguments, answered)

    def _sought(self, name: str, channel_name: str, to: str, fact: Fact) -> None:
        """Note that the channel was set to that position just now."""
        work = self._work
        work.requests.notice_deleted()
        topic = work.model.topic(name)
        channel = topic.channel(channel_name) if topic else None
        if topic is None or channel is None:
            work.break_off(f"{name}/{channel_name} was set to {to}, and is gone")
        if to != "earliest":
            for debt in topic.backlog:
                if debt.finished == NEVER:
                    channel.passed.setdefault(debt.message.body, Fact(fact.asked))
        backlog = work.node.backlog_of(topic.name, channel.name)
        work.rules.sought(topic, channel, backlog)
        pending_now = set(backlog)
        if to == "earliest" and topic.name == KEEPS and not (work.faulty or work.was_faulty):
            self._look_what_is_kept(topic, channel, pending_now)
        stored = set(work.node.backlog_of(topic.name, channel.name, stored=True))
        sure = not (work.faulty or work.was_faulty)
        if to == "earliest" and not sure:
            self._perhaps(topic, channel, pending_now, fact.asked)
        work.done[Deed.REPLAYED] += work.model.sought(channel, pending_now, stored, fact, sure=sure)
        work.done[Deed.SOUGHT] += 1
        for reader in work.consumers.readers:
            if reader.channel is channel:
                for id_ in [id_ for id_, debt in reader.has.items() if debt.dropped is not None]:
                    del reader.has[id_]

    def _look_what_is_kept(self, topic: Topic, channel: Channel, pending: set[bytes]) -> None:
        """Check that everything a policy retains is pending in a channel set to the earliest."""
        work = self._work
        young_ns = work.loop.clock.wall_ns - RETAIN_NS
        waiting = {debt.message.body for debt in topic.backlog if debt.finished == NEVER}
        for message in topic.messages:
            at_ns = work.stored_ns.get(message.body, 0)
            if message.stored.answered <= work.position and at_ns > young_ns and message.body not in waiting:
                if message.body not in pending:
                    work.break_off(f"{topic.name}/{channel.name}: {message.body[:24]!r} is not kept")
                debt = channel.debts.get(message.body)
                if debt is not None and debt.finished < NEVER:
                    work.done[Deed.KEPT] += 1

    async def handle(self) -> None:
        """Finish, requeue, send or cancel one pending message of a channel, by id."""
        work = self._work
        found = self._some_channel()
        if found is None:
            return
        topic, channel = found
        pending = work.node.backlog_of(topic.name, channel.name)
        if not pending:
            return
        body = work.rng.choice(sorted(pending))
        seq, debt = pending[body], channel.debts.get(body)
        verb = work.rng.choice(("finish", "requeue", "requeue", "send", "cancel"))
        deferred = work.node.is_deferred(topic.name, channel.name, seq)
        if debt is None or debt.finished < NEVER or (verb in {"send", "cancel"} and not deferred):
            return
        delay_ms = work.rng.choice((0, 1500, 20_000)) if verb == "requeue" else 0
        work.note(f"{verb} {body[:14].decode()} on {channel.name} {delay_ms} ms")
        fact = work.model.fact(work.position)
        arguments = {"topic": topic.name, "channel": channel.name, "id": work.node.id_of(seq)}
        if delay_ms:
            arguments["defer"] = str(delay_ms)
        answered = self._answer_to(verb, topic, fact)
        came = (NEVER, work.loop.clock.wall_ns + delay_ms * MILLISECOND if delay_ms else 0)

        def defer(ok: bool) -> None:
            answered(ok)
            if ok and came in debt.dues:
                debt.dues[debt.dues.index(came)] = (work.position, came[1])

        if verb in {"finish", "cancel"}:
            debt.dropped = debt.dropped or fact
        else:
            debt.dues.append(came)
        told = answered if verb in {"finish", "cancel"} else defer
        work.ask(f"message/{verb}", arguments, told)
        # One that is about to become a dead letter is refused.
        if verb in {"finish", "cancel"} and work.node.is_alive(topic.name, channel.name, seq):
            work.break_off(f"{topic.name}/{channel.name} has pending {body[:24]!r} after {verb}")
        work.done[Deed.HANDLED] += 1
        for reader in work.consumers.readers:
            if reader.channel is channel:
                for id_ in [id_ for id_, has in reader.has.items() if has is debt]:
                    del reader.has[id_]
