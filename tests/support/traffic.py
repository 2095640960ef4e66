"""Clients that continue whatever happens to an nsqd, and a ledger of the answers they got."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from nsqclient.wire.message import MessageRecord
from tests.support.wire import ERROR, MESSAGE, Wire, dpub, fin, mpub, pub, rdy, req, sub

TOPIC: Final = "cycles"
CHANNELS: Final = ("one", "two")
# Covers one checkpoint, which is due each second, and the time that it takes on a busy machine.
FORGIVEN_S: Final = 2.5
_HEARTBEAT: Final = b"_heartbeat_"
_GONE: Final = (OSError, EOFError, AssertionError)


@dataclass
class Ledger:
    """The numbers of the messages that were acknowledged, handled and deferred."""

    acknowledged: set[int] = field(default_factory=set)
    due: dict[int, float] = field(default_factory=dict)
    handled: dict[str, Counter[int]] = field(default_factory=lambda: {name: Counter() for name in CHANNELS})
    finished: dict[str, dict[int, float]] = field(default_factory=lambda: {name: {} for name in CHANNELS})
    defer: dict[str, dict[int, float]] = field(default_factory=lambda: {name: {} for name in CHANNELS})
    # False if the network loses answers, because a FIN may then not have arrived.
    may_not_come_again: bool = True
    complaints: list[str] = field(default_factory=list)

    def killed(self) -> None:
        """Forget messages that were finished in the last moment, because they may come again."""
        sure = time.time() - FORGIVEN_S
        for name, finished in self.finished.items():
            self.finished[name] = {number: when for number, when in finished.items() if when < sure}

    def lost(self) -> dict[str, list[int]]:
        """Return the messages that were acknowledged and never came, by channel."""
        return {name: sorted(self.acknowledged - set(seen)) for name, seen in self.handled.items()}

    def duplicates(self) -> int:
        return sum(seen.total() - len(seen) for seen in self.handled.values())

    def came(self, channel: str, number: int) -> None:
        now = time.time()
        finished = self.finished[channel].get(number)
        if finished is not None and self.may_not_come_again:
            self.complaints.append(f"{number} came again on {channel} after {now - finished:.1f} s")
        # A stalling network may delay a delivery until it has timed out; nsqd then refuses its REQ.
        defer = self.defer[channel].get(number, 0) if self.may_not_come_again else 0
        due = max(self.due.get(number, 0), defer)
        if now < due - 0.05:
            self.complaints.append(f"{number} came {due - now:.2f} s too soon on {channel}")
        self.handled[channel][number] += 1


class Traffic:
    """A publisher, and a consumer on each channel, which reconnect when cut off."""

    def __init__(self, ledger: Ledger, address: Callable[[], tuple[str, int]], seed: int) -> None:
        self.ledger = ledger
        self._address = address
        self._rng = random.Random(seed)
        self._next = max(ledger.acknowledged, default=0) + 1000
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._repeat, args=(self._publish,))]
        self._threads += [
            threading.Thread(target=self._repeat, args=(self._consume, channel)) for channel in CHANNELS
        ]

    @contextmanager
    def flowing(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            for thread in self._threads:
                thread.join()

    def _repeat(self, work: Callable[..., None], *arguments: str) -> None:
        while not self._stopped.is_set():
            try:
                with Wire(self._address()) as wire:
                    wire.socket.settimeout(2)
                    work(wire, *arguments)
            except _GONE:
                self._stopped.wait(0.05)

    def _publish(self, wire: Wire) -> None:
        while not self._stopped.is_set():
            first, self._next = self._next, self._next + 20
            kind = self._rng.choice(("pub", "pub", "mpub", "dpub"))
            numbers = range(first, first + (20 if kind == "mpub" else 1))
            filler = b" " + b"x" * self._rng.choice((0, 20, 200, 3000))
            if kind == "mpub":
                wire.send(mpub(TOPIC, *(b"%d%b" % (number, filler) for number in numbers)))
            elif kind == "dpub":
                delay_ms = self._rng.choice((50, 400, 1500))
                self.ledger.due[first] = time.time() + delay_ms / 1000
                wire.send(dpub(TOPIC, delay_ms, b"%d%b" % (first, filler)))
            else:
                wire.send(pub(TOPIC, b"%d%b" % (first, filler)))
            self._answered(wire)
            self.ledger.acknowledged.update(numbers)

    def _answered(self, wire: Wire) -> None:
        while True:
            kind, data = wire.frame()
            if data == _HEARTBEAT:
                wire.send(b"NOP\n")
            elif kind == ERROR:
                raise EOFError(data)
            else:
                return

    def _consume(self, wire: Wire, channel: str) -> None:
        asked: dict[int, float] = {}
        try:
            self._handle(wire, channel, asked)
        finally:
            # nsqd may not have received the last of these requeues.
            for number, when in asked.items():
                if when > time.time() - FORGIVEN_S:
                    self.ledger.defer[channel].pop(number, None)

    def _handle(self, wire: Wire, channel: str, asked: dict[int, float]) -> None:
        wire.send(sub(TOPIC, channel))
        self._answered(wire)
        wire.send(rdy(50))
        while not self._stopped.is_set():
            try:
                kind, data = wire.frame()
            except TimeoutError:
                continue
            if data == _HEARTBEAT:
                wire.send(b"NOP\n")
            if kind != MESSAGE:
                continue
            message = MessageRecord.decode(data)
            number = int(message.body.split(b" ")[0])
            self.ledger.came(channel, number)
            if self._rng.random() < 0.1:
                delay_ms = self._rng.choice((0, 300))
                self.ledger.defer[channel][number] = time.time() + delay_ms / 1000
                asked[number] = time.time()
                wire.send(req(message, delay_ms))
            else:
                wire.send(fin(message))
                self.ledger.finished[channel][number] = time.time()
        # Closing a socket that has unread bytes discards bytes that the other side has not read yet.
        wire.send(b"CLS\n")
        while wire.frame()[1] != b"CLOSE_WAIT":
            pass
