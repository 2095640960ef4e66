"""Consumers in the random work: the messages they get, and their answers."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nsqclient.wire.frames import FRAME_ERROR
from tests.campaign.client import Client, ask_for_headers, sub
from tests.campaign.headed import body_of
from tests.campaign.ledger import Deed
from tests.campaign.model import NEVER, Channel, Debt, Topic
from tests.campaign.places import CHANNELS, MILLISECOND, TOPICS
from tests.support.simulated_loop import SECOND

if TYPE_CHECKING:
    from tests.campaign.workload import Workload

MAX_CONSUMERS: Final = 4


@dataclass(eq=False)
class Reader:
    """A consumer and its unanswered messages: (message id, debt)."""

    client: Client
    topic: Topic
    channel: Channel
    has: dict[bytes, Debt] = field(default_factory=dict)
    errors: int = 0
    # By message id, for the messages it got.
    attempts: dict[bytes, int] = field(default_factory=dict)

    def holds(self, debt: Debt) -> bool:
        """Say whether it is connected and has not answered the message."""
        return not self.client.closed and debt in self.has.values()


class Consumers:
    """The connected consumers, and the messages they have finished."""

    def __init__(self, work: "Workload") -> None:
        self._work = work
        self.readers: list[Reader] = []
        # What was finished in this life of the node and so must not come again.
        self.finished: set[Debt] = set()
        # If set, every message is finished immediately.
        self.draining = False
        # Commands without an answer up to this position may be lost: the node stopped with a failing disk.
        self.unsure_until = -1

    async def subscribe(self) -> None:
        work = self._work
        if len(self.readers) >= MAX_CONSUMERS:
            await self.unsubscribe()
            return
        rng = work.rng
        self.subscribe_to(rng.choice(TOPICS), rng.choice(CHANNELS), rng.choice(work.profile.ready))

    def subscribe_to(self, name: str, channel_name: str, ready: int) -> None:
        """Add a consumer."""
        work = self._work
        work.requests.notice_deleted()
        work.note(f"SUB {name} {channel_name} RDY {ready}")
        fact, topic_fact = work.model.fact(work.position), work.model.fact(work.position)
        # SUB is answered without a sync, because messages are safe without the channel's creation.
        fact.unforced = topic_fact.unforced = True
        topic = work.model.make_topic(name, topic_fact)
        channel = work.model.make_channel(topic, channel_name, fact)
        client = work.node.connect()
        calls = len(work.disk.calls)
        reader = Reader(client, topic, channel)
        self.readers.append(reader)

        def reply(kind: int, data: bytes) -> None:
            if data == b"OK":
                failed = name in work.node.health.failed_fsyncs
                if failed or any(call.error for call in work.disk.calls[calls:]):
                    # The channel is only in memory and is written with the next append that works, so nothing
                    # is promised yet.
                    return
                fact.answered = topic_fact.answered = work.position
            elif kind == FRAME_ERROR and data.startswith((b"E_FIN", b"E_REQ", b"E_TOUCH")):
                reader.errors += 1
            elif not work.faulty:
                work.break_off(f"a consumer was told {data!r}")

        client.on_reply = reply
        extended = len(self.readers) % 2 == 0
        client.on_message = lambda id_, attempts, body: self._delivered(
            reader, id_, attempts, body_of(body) if extended else body
        )
        if extended:
            client.say(ask_for_headers())
        client.say(sub(name, channel_name))
        client.say(b"RDY %d\n" % ready)

    def _delivered(self, reader: Reader, id_: bytes, attempts: int, body: bytes) -> None:
        work = self._work
        if work.bodies_by_id.setdefault((reader.topic.name, id_), body) != body:
            work.break_off(f"id {id_!r} was given to two messages")
        debt = reader.channel.debts.get(body)
        if debt is None:
            if not (work.faulty or work.was_faulty):
                work.break_off(
                    f"{reader.topic.name}/{reader.channel.name} was given {body[:24]!r}, not its own"
                )
            # A fault may have kept the creation of a channel, or an emptying or pause, from the disk.
            reader.client.say(b"FIN %b\n" % id_)
            if body in work.model.messages:
                work.model.messages[body].strayed = work.position
            return
        # Which of the two it is cannot be told by the body.
        doubled = body in reader.channel.doubled
        if debt in self.finished and not doubled:
            work.break_off(f"{reader.topic.name}/{reader.channel.name} was given {body[:24]!r} after FIN")
        if debt.dropped is not None and debt.dropped.answered <= work.position:
            work.break_off(f"{reader.topic.name}/{reader.channel.name} was given {body[:24]!r} after empty")
        since, due_ns = debt.dues[-1] if debt.dues else (0, 0)
        # A message that was due once stays ready, even if the clock is set back later.
        early_ns = due_ns - work.loop.clock.latest_ns
        # The delay of a REQ, which has no answer, may be lost with a checkpoint that could not be written.
        forgotten = debt.message.stored.asked != since <= self.unsure_until
        if early_ns > MILLISECOND and not (
            doubled or forgotten or any(since <= position for position in debt.deliveries)
        ):
            work.break_off(f"{body[:24]!r} came {early_ns / SECOND:.3f} s too soon")
        work.rules.delivered(reader, debt, attempts, id_)
        reader.attempts[id_] = attempts
        debt.deliveries.append(work.position)
        if any(debt in other.has.values() for other in self.readers):
            work.done[Deed.TIMED_OUT] += 1
        if self.draining:
            work.loop.call_soon(self._finish_at_once, reader, id_, debt)
        else:
            reader.has[id_] = debt

    def _finish_at_once(self, reader: Reader, id_: bytes, debt: Debt) -> None:
        reader.client.say(b"FIN %b\n" % id_)
        self._is_finished(debt, self._work.position)

    async def unsubscribe(self) -> None:
        if self.readers:
            reader = self.readers.pop(self._work.rng.randrange(len(self.readers)))
            self._work.note(f"close {reader.topic.name} {reader.channel.name}")
            reader.client.close()

    async def answer(self) -> None:
        """FIN, REQ or TOUCH some of the consumers' messages."""
        work = self._work
        for reader in list(self.readers):
            for id_ in list(reader.has):
                draw = work.rng.random()
                profile = work.profile
                if draw < profile.finished:
                    await self._finish(reader, id_)
                elif draw < profile.finished + profile.requeued:
                    await self._requeue(reader, id_)
                elif draw < profile.finished + profile.requeued + profile.touched:
                    reader.client.say(b"TOUCH %b\n" % id_)
                    work.done[Deed.TOUCHED] += 1
                    await work.turns()

    async def _finish(self, reader: Reader, id_: bytes) -> None:
        work = self._work
        debt = reader.has.pop(id_)
        work.note(f"FIN {debt.message.body[:14].decode()} on {reader.channel.name}")
        before, errors = work.position, reader.errors
        reader.client.say(b"FIN %b\n" % id_)
        await work.turns()
        if reader.errors == errors and not reader.client.closed and debt.finished == NEVER:
            self._is_finished(debt, before)

    def _is_finished(self, debt: Debt, position: int) -> None:
        self.finished.add(debt)
        debt.finished, debt.finished_ns = position, self._work.loop.clock.monotonic_ns
        self._work.done[Deed.FINISHED] += 1

    async def _requeue(self, reader: Reader, id_: bytes) -> None:
        work = self._work
        if next(iter(reader.has)) != id_:
            work.done[Deed.OUT_OF_ORDER] += 1
        debt = reader.has.pop(id_)
        delay_ms = work.rng.choice(work.profile.requeue_ms)
        if delay_ms and work.rng.random() < work.profile.own_delays:
            delay_ms = work.rng.randrange(50, 20_000)
        work.done[Deed.PUT_OFF if delay_ms else Deed.REQUEUED] += 1
        # Taken now, because the message may come again in this turn.
        errors, attempts = reader.errors, reader.attempts[id_]
        delay_ns = delay_ms * MILLISECOND or work.rules.retry_after_ns(reader.topic, reader.channel, attempts)
        due_ns = work.loop.clock.wall_ns + delay_ns
        work.done[Deed.RETRIED] += bool(delay_ns) and not delay_ms
        work.note(f"REQ {debt.message.body[:14].decode()} on {reader.channel.name} {delay_ms} ms")
        reader.client.say(b"REQ %b %d\n" % (id_, delay_ms))
        # During the turn the message may or may not be deferred; afterwards it is.
        came = (NEVER, due_ns if delay_ns else 0)
        debt.dues.append(came)
        await work.turns()
        debt.dues.remove(came)
        told = reader.errors == errors and not reader.client.closed
        if told and not work.rules.dies(reader.topic, reader.channel, debt, id_, attempts):
            debt.dues.append((work.position, came[1]))
