"""A body in pieces arrives whole, and other tasks run while it is sent."""

import asyncio
import itertools

import pytest

from nsqcore.http.pieces import InPieces

PIECES = [b"%06d" % n * 100 for n in range(2000)]


class Written:
    """The written parts, and how often another task had run before each."""

    def __init__(self):
        self.parts = []
        self.turns = 0
        self.turns_before = []

    async def write(self, data):
        self.parts.append(data)
        self.turns_before.append(self.turns)

    async def take_turns(self):
        while True:
            self.turns += 1
            await asyncio.sleep(0)


async def test_long_body_arrives_whole_and_lets_other_tasks_run():
    written = Written()
    others = asyncio.create_task(written.take_turns())
    await InPieces(PIECES, "text/plain").write(written)
    others.cancel()

    assert b"".join(written.parts) == b"".join(PIECES)
    assert max(map(len, written.parts)) < 65 << 10
    assert all(later > earlier for earlier, later in itertools.pairwise(written.turns_before))


@pytest.mark.parametrize("pieces", [[], [b""], [b"one"], [b"x" * (1 << 20), b"end"]], ids=len)
async def test_few_pieces_and_large_ones_arrive_too(pieces):
    written = Written()
    body = InPieces(pieces, "text/plain")
    await body.write(written)

    assert b"".join(written.parts) == b"".join(pieces)
    assert body.size == len(b"".join(pieces))
    assert body.decode() == b"".join(pieces).decode()
