"""Lets several callbacks on one event loop wait for the same signals."""

import asyncio
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

# signal -> its callbacks; an event loop allows only one handler of each signal.
_watchers: Final[dict[tuple[asyncio.AbstractEventLoop, signal.Signals], list[Callable[[], None]]]] = {}


@contextmanager
def watched(signals: Iterable[signal.Signals], callback: Callable[[], None]) -> Iterator[None]:
    """Call *callback* on the event loop when one of *signals* arrives; only in the main thread."""
    loop = asyncio.get_running_loop()
    keys = [(loop, one) for one in signals]
    for key in keys:
        if key not in _watchers:
            _watchers[key] = []
            _install(*key)
        _watchers[key].append(callback)
    try:
        yield
    finally:
        for key in keys:
            _watchers[key].remove(callback)
            if not _watchers[key]:
                del _watchers[key]
                _uninstall(*key)


def _deliver(loop: asyncio.AbstractEventLoop, which: signal.Signals) -> None:
    for callback in list(_watchers.get((loop, which), ())):
        callback()


def _install(loop: asyncio.AbstractEventLoop, which: signal.Signals) -> None:
    try:
        loop.add_signal_handler(which, _deliver, loop, which)
    except NotImplementedError:  # Windows

        def handler(_number: int, _frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(_deliver, loop, which)

        signal.signal(which, handler)


def _uninstall(loop: asyncio.AbstractEventLoop, which: signal.Signals) -> None:
    try:
        loop.remove_signal_handler(which)
    except NotImplementedError:
        signal.signal(which, signal.default_int_handler if which == signal.SIGINT else signal.SIG_DFL)
