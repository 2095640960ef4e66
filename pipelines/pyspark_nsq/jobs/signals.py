"""Handles the signals that end a job in good order."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether SIGTERM or SIGINT has come."""

    asked = False


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Record SIGTERM and SIGINT instead of dying from them."""
    stop = Stop()

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.asked = True

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
