"""Lets another thread answer messages, and remembers whose handler a thread runs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nsqclient._message import Message, Outcome, Source
from nsqclient._threads import Mailbox

# In the thread of a handler: the owner of that handler.
_working_for = threading.local()


class ThreadSafe:
    """Lets another thread answer the messages of a connection, which belongs to the event loop."""

    def __init__(self, source: Source, mailbox: Mailbox) -> None:
        self.source = source
        self.address, self.topic, self.channel = source.address, source.topic, source.channel
        self.retry = source.retry
        self._post = mailbox.post

    @property
    def is_closed(self) -> bool:
        return self.source.is_closed

    def answer(self, command: bytes, outcome: Outcome, received_at: float) -> None:
        self._post(self.source.answer, command, outcome, received_at)

    def touch(self, message_id: bytes) -> None:
        self._post(self.source.touch, message_id)

    def handling_failed(self, message: Message[Any], error: BaseException | None) -> None:
        self._post(self.source.handling_failed, message, error)


@contextmanager
def working_for(owner: object) -> Iterator[None]:
    """Mark the calling thread as running a handler of *owner*."""
    _working_for.owner = owner
    try:
        yield
    finally:
        _working_for.owner = None


def works_for(owner: object) -> bool:
    """Whether this thread runs a handler of *owner*."""
    return getattr(_working_for, "owner", None) is owner
