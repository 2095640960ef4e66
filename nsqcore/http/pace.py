"""Lets other tasks have their turn during long work on an event loop."""

import asyncio


class Pace:
    """Its ``done()`` is awaited for each piece of the work, and lets others have their turn after so many."""

    def __init__(self, pieces: int) -> None:
        """*pieces* should take a few milliseconds together."""
        self._pieces = pieces
        self._done = 0

    async def done(self, pieces: int = 1) -> None:
        self._done += pieces
        if self._done >= self._pieces:
            self._done = 0
            await asyncio.sleep(0)
