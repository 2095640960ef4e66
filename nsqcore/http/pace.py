"""Long work in the middle of an event loop that others need too."""

import asyncio


class Pace:
    """Awaited for each piece of the work; gives the others their turn after so many."""

    def __init__(self, pieces: int) -> None:
        """*pieces* that together take a few milliseconds."""
        self._pieces = pieces
        self._done = 0

    async def done(self, pieces: int = 1) -> None:
        self._done += pieces
        if self._done >= self._pieces:
            self._done = 0
            await asyncio.sleep(0)
