"""The Enter key of the terminal, without a thread that waits for it."""

import asyncio
import os
import sys


class Keyboard:
    """Wakes the tasks that wait for a line. A line typed while no task waits is dropped."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdin.fileno() if descriptor is None and sys.stdin else (descriptor or 0)
        self._loop = asyncio.get_running_loop()
        self._typed: asyncio.Future[None] = self._loop.create_future()
        self.is_there = True
        try:
            self._loop.add_reader(self._descriptor, self._read)
        except OSError:  # a file, or closed
            self.is_there = False

    async def enter(self) -> bool:
        """Wait until a line is typed; return False as soon as no line can come."""
        if self.is_there:
            await asyncio.shield(self._typed)
        return self.is_there

    def close(self) -> None:
        if self.is_there:
            self._loop.remove_reader(self._descriptor)
            self.is_there = False

    def _read(self) -> None:
        if not self._is_ours() or not (data := self._next()):
            self.close()
        elif b"\n" not in data:
            return
        self._typed.set_result(None)
        self._typed = self._loop.create_future()

    def _next(self) -> bytes:
        try:
            return os.read(self._descriptor, 4096)
        except OSError:
            return b""

    def _is_ours(self) -> bool:
        """Whether we may read: the system stops a background process that reads its terminal."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:  # no terminal, or not the one this process belongs to
            return True
