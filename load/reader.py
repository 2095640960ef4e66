"""Reads channels from every nsqd that nsqlookupd names, on blocking sockets, and books the messages."""

import heapq
import itertools
import random
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from load.book import EARLY, Book
from load.connection import BROKEN, Access, LoadConnection
from load.finding import ClusterAsker
from load.marks import Marker, Stamp
from load.profile import Between, ConsumerPlan
from nsqclient.wire import commands
from nsqclient.wire.message import MessageRecord

# How often nsqlookupd is asked for a topic, so a restarted nsqd is found within this time. A reader of many
# topics asks for one topic after the other, because otherwise it would do nothing but ask.
LOOKUP_SECONDS: Final = 1.0
_MAX_LOOKUPS_PER_SECOND: Final = 10

# A message that arrives more than this before its due time was not deferred as asked; clocks of hosts
# differ by less.
EARLY_NS: Final = 5_000_000


@dataclass(frozen=True)
class ReaderEvent:
    """One event of a turn: a connection was made, messages were read, or either failed with an error."""

    what: str
    milliseconds: Sequence[float]
    size: int = 0
    error: Exception | None = None


@dataclass(slots=True)
class _Link:
    """A connection, the channel it reads, and its unfinished messages."""

    connection: LoadConnection
    channel: str
    held: dict[bytes, Stamp | None]


class ChannelReader:
    """A consumer in one thread: the caller calls ``turn`` repeatedly and ``close`` at the end."""

    def __init__(
        self,
        lookupds: list[str],
        pairs: Sequence[tuple[str, str]],
        marker: Marker,
        book: Book,
        access: Access,
        plan: ConsumerPlan,
    ) -> None:
        self._lookupds = lookupds
        self._pairs = list(pairs)
        self._marker = marker
        self._book = book
        self._access = access
        self._asker = ClusterAsker(access)
        self._plan = plan
        self._per_message = plan.users / plan.rate if plan.rate else 0.0
        self._links: dict[tuple[str, str, str], _Link] = {}
        self._lookup_at = 0.0
        self._looked = 0
        self._free_at = 0.0
        # The planned answers to unfinished messages: (time, order, link, id, what)
        self._later: list[tuple[float, int, _Link, bytes, str]] = []
        self._order = itertools.count()

    def turn(self, wait: float) -> list[ReaderEvent]:
        """Look up new nsqd if that is due, then read what arrives in *wait* seconds; return the events."""
        now = time.monotonic()
        outcomes = self._discover() if now >= self._lookup_at else []
        if self._later:
            outcomes += self._do_what_is_due(now)
            wait = max(0.0, min(wait, self._later[0][0] - now)) if self._later else wait
        if self._free_at > now:
            time.sleep(min(wait, self._free_at - now))
            return outcomes
        by_number = {link.connection.fileno(): (key, link) for key, link in self._links.items()}
        poller = select.poll()
        for number in by_number:
            poller.register(number, select.POLLIN)
        for number, _ in poller.poll(wait * 1000):
            outcomes += self._read(*by_number[number])
        return outcomes

    def close(self) -> None:
        """Unsubscribe, finish the messages that still arrive, and close the connections."""
        for link in self._links.values():
            try:
                ids = [*link.held]
                link.held = {}
                for message in link.connection.end():
                    self._booked(link, message)
                    ids.append(message.id)
                link.connection.finish(ids)
                link.connection.leave()
            except BROKEN:
                # Messages that were not finished are delivered again.
                self._book.lost(link.connection.address)
                link.connection.close()
        self._links.clear()
        self._later.clear()

    def _discover(self) -> list[ReaderEvent]:
        topics = list(dict.fromkeys(topic for topic, _ in self._pairs))
        each = max(LOOKUP_SECONDS / len(topics), 1 / _MAX_LOOKUPS_PER_SECOND)
        outcomes: list[ReaderEvent] = []
        if self._looked:
            topics = [topics[self._looked % len(topics)]]
        self._looked += 1
        self._lookup_at = time.monotonic() + each
        for topic in topics:  # all topics the first time
            began = time.perf_counter()
            try:
                found = self._asker.nsqds_of(self._lookupds, topic)
            except (OSError, ValueError) as error:
                return [*outcomes, ReaderEvent("LOOKUP", (_since(began),), error=error)]
            outcomes.append(ReaderEvent("LOOKUP", (_since(began),)))
            for nsqd in found:
                outcomes += [
                    self._subscribe(nsqd.tcp, topic, channel)
                    for of, channel in self._pairs
                    if of == topic and (nsqd.tcp, topic, channel) not in self._links
                ]
        return outcomes

    def _subscribe(self, address: str, topic: str, channel: str) -> ReaderEvent:
        began = time.perf_counter()
        try:
            connection = LoadConnection(address, self._access)
            try:
                connection.request(commands.sub(topic, channel))
                connection.send(commands.rdy(self._plan.ready))
            except BaseException:
                connection.close()
                raise
        except BROKEN as error:
            return ReaderEvent("SUB", (_since(began),), error=error)
        self._links[address, topic, channel] = _Link(connection, f"{topic} {channel}", {})
        return ReaderEvent("SUB", (_since(began),))

    # --- messages

    def _read(self, key: tuple[str, str, str], link: _Link) -> list[ReaderEvent]:
        try:
            messages = link.connection.take()
            times, size = self._handle(link, messages)
        except BROKEN as error:
            return [self._drop(key, link, error)]
        if late := link.connection.late:
            link.connection.late = 0
            self._book.counted("answers that came after the timeout", late)
        if self._per_message:
            self._free_at = max(self._free_at, time.monotonic()) + self._per_message * len(messages)
        return [ReaderEvent("DELIVERY", times, size)] if messages else []

    def _handle(self, link: _Link, messages: list[MessageRecord]) -> tuple[list[float], int]:
        """Book every message before it is answered: one that was finished and not booked would look lost."""
        now_ns = time.time_ns()
        plan, times, size, early = self._plan, list[float](), 0, 0
        choosing = plan.requeue or plan.abandon or plan.touch
        answers: list[bytes] = []
        for message in messages:
            mark = self._booked(link, message)
            size += len(message.body)
            if mark is not None and message.attempts == 1:
                times.append(max(0.0, (now_ns - mark.due_ns) / 1e6))
                early += mark.due_ns - now_ns > EARLY_NS
            if choosing and mark is not None:
                answer = self._choose(link, message.id, mark)
            else:
                answer = commands.fin(message.id)
            if answer:
                answers.append(answer)
        if early:
            self._book.counted(EARLY, early)
        if answers:
            link.connection.send(b"".join(answers))
        return times, size

    def _booked(self, link: _Link, message: MessageRecord) -> Stamp | None:
        mark = self._marker.read(message.body)
        if mark is None:
            self._book.counted("messages of another run")
        else:
            self._book.received(link.channel, link.connection.address, mark, message.attempts)
        return mark

    def _choose(self, link: _Link, message_id: bytes, mark: Stamp) -> bytes:
        plan, drawn = self._plan, random.random()
        if drawn < plan.requeue:
            self._book.unfinished("requeue", link.channel, mark)
            self._book.counted("REQ")
            return commands.req(message_id, drawn_from(plan.requeue_ms))
        if drawn < plan.requeue + plan.abandon:
            self._book.unfinished("timeout", link.channel, mark)
            self._book.counted("left to time out")
            return b""
        if drawn < plan.requeue + plan.abandon + plan.touch:
            link.held[message_id] = mark
            hold = drawn_from(plan.hold_ms) / 1000
            for seconds, what in ((hold / 2, "touch"), (hold, "fin")):
                entry = (time.monotonic() + seconds, next(self._order), link, message_id, what)
                heapq.heappush(self._later, entry)
            return b""
        return commands.fin(message_id)

    def _do_what_is_due(self, now: float) -> list[ReaderEvent]:
        outcomes = []
        while self._later and self._later[0][0] <= now:
            _, _, link, message_id, what = heapq.heappop(self._later)
            if message_id not in link.held:
                continue
            try:
                if what == "touch":
                    self._book.counted("TOUCH")
                    link.connection.send(commands.touch(message_id))
                else:
                    link.connection.send(commands.fin(message_id))
                    del link.held[message_id]
            except BROKEN as error:
                key = next(key for key, one in self._links.items() if one is link)
                outcomes.append(self._drop(key, link, error))
        return outcomes

    def _drop(self, key: tuple[str, str, str], link: _Link, error: Exception) -> ReaderEvent:
        """Remove a broken connection: unfinished messages come again, those finished last may come again."""
        link.connection.close()
        self._links.pop(key, None)
        self._book.lost(link.connection.address)
        for mark in link.held.values():
            if mark is not None:
                self._book.unfinished("lost", link.channel, mark)
        link.held.clear()
        return ReaderEvent("DELIVERY", (), error=error)


def drawn_from(span: Between) -> int:
    return random.randint(span.low, span.high)


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000
