"""Lets other tasks run during long work on an event loop."""

import asyncio


class Pace:
    """Its ``done()`` is awaited for each unit of work, and lets other tasks run after so many units."""

    def __init__(self, pieces: int) -> None:
        """*pieces* units should take a few milliseconds in total."""
        self._pieces = pieces
        self._done = 0

    async def done(self, pieces: int = 1) -> None:
        self._done += pieces
        if self._done >= self._pieces:
            self._done = 0
            await asyncio.sleep(0)
