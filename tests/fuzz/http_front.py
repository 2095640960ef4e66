"""The same bytes get the same answers, and the same end of the connection, from the front and from aiohttp.

One difference is allowed. If a read contains requests and then a bad one, aiohttp drops the requests and only
refuses the bad one; the front has already published and answered them.
"""

import asyncio
import logging
import tempfile
from collections.abc import Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.http_doors import Doors, Outcome, outcome

PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"

targets = st.sampled_from(
    [
        b"/pub?topic=t",
        b"/pub?topic=u",
        b"/mpub?topic=t",
        b"/pub?topic=t" * 6,
        b"/pub?topic=",
        b"/pub?topic=t&defer=0",
        b"/ping",
        b"*",
    ]
)
names = st.sampled_from(
    [
        *(b"Host", b"host", b"Content-Length", b"content-length", b"Content-Type", b"User-Agent", b"Accept"),
        *(b"Connection", b"Transfer-Encoding", b"Expect", b"Upgrade", b"A", b"Content-Encoding", b"", b"A b"),
    ]
)
values = st.one_of(
    st.sampled_from(
        [
            *(
                b"x",
                b"",
                b"1",
                b"3",
                b" 3 ",
                b"+3",
                b"3, 3",
                b"0",
                b"00003",
                b"9" * 20,
                b"x y",
                b"a/b",
                b"[::1]:1",
            ),
            *(b"keep-alive", b"Keep-Alive", b"close", b"upgrade", b"chunked", b"identity", b"100-continue"),
        ]
    ),
    st.binary(max_size=6),
)
separators = st.sampled_from([b": ", b": ", b": ", b": ", b":", b":\t", b" : ", b" "])
ends = st.sampled_from([b"\r\n"] * 12 + [b"\n", b"\r", b"\r\n ", b"\r\r\n"])
headers = st.tuples(names, separators, values, ends).map(b"".join)
plain = st.sampled_from([b"Host: x\r\n", b"Content-Length: 3\r\n", b"Connection: keep-alive\r\n"])
heads = st.tuples(
    st.sampled_from([b"POST ", b"POST ", b"POST ", b"GET ", b"post ", b"POST  ", b"\r\nPOST "]),
    targets,
    st.sampled_from(
        [b" HTTP/1.1\r\n"] * 6 + [b" HTTP/1.0\r\n", b" HTTP/2.0\r\n", b" HTTP/1.1 \r\n", b" HTTP/1.1\n"]
    ),
    st.lists(st.one_of(plain, headers), max_size=6).map(b"".join),
).map(b"".join)
usual = st.tuples(
    st.sampled_from([b"t", b"u"]),
    st.lists(headers, max_size=1).map(b"".join),
    st.sampled_from([b"abc", b"abcd", b"ab"]),
).map(lambda of: b"POST /pub?topic=%b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n%b\r\n%b" % of)
requests = st.one_of(
    usual, st.tuples(heads, st.sampled_from([b"\r\n", b"\r\n", b"\n", b""]), st.just(b"abc")).map(b"".join)
)


class House:
    """One nsqd for all examples, in its own event loop."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._runner = asyncio.Runner()
        self.doors = self.run(self._open())
        # It would log a line for every refusal.
        logging.getLogger("nsqcore.http").setLevel(logging.CRITICAL)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    async def _open(self) -> Doors:
        return await Doors(Path(self._folder.name) / "data").__aenter__()

    def close(self) -> None:
        self.run(self.doors.__aexit__())
        self._runner.close()
        self._folder.cleanup()


houses: list[House] = []


def close() -> None:
    while houses:
        houses.pop().close()


def cut(request: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(request)) for place in places), len(request)]
    return [request[a:b] for a, b in pairwise(edges) if a < b]


async def compare(doors: Doors, pieces: list[bytes]) -> tuple[Outcome, Outcome]:
    return await outcome(doors.alone, *pieces), await outcome(doors.front, *pieces)


@given(st.lists(st.tuples(requests, st.lists(st.integers(0, 120), max_size=2)), min_size=1, max_size=3))
def fuzz(sent: list[tuple[bytes, list[int]]]) -> None:
    if not houses:
        houses.append(House())
    house = houses[0]
    pieces = [piece for request, places in sent for piece in cut(request, places)] + [PING]
    alone, front = house.run(compare(house.doors, pieces))

    assert front.kept == alone.kept
    if alone.statuses and alone.statuses[-1] == 400 and not alone.kept:
        before = len(alone.statuses) - 1
        assert front.statuses[:before] == alone.statuses[:before]
        assert front.statuses[-1] == 400
        assert set(front.statuses[before:-1]) <= {200}
    else:
        assert front == alone
