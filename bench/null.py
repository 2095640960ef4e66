"""A server that only reads and answers, to measure the load, the event loop and the kernel.

    python -m bench.null --tcp-address 127.0.0.1:4150 --http-address 127.0.0.1:4151

It answers every read with one OK, so it is for work that sends one small request and waits.
"""

import argparse
import asyncio
import sys
from typing import Final, cast

from bench.load import OK_FRAME
from bench.server import parse_address

HTTP_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nOK"


class Answering(asyncio.Protocol):
    """One connection; it sends *answer* for everything it reads."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:  # noqa: ARG002  # the data is ignored
        self._transport.write(self._answer)


async def serve(tcp: tuple[str, int], http: tuple[str, int]) -> None:
    loop = asyncio.get_running_loop()
    for address, answer in ((tcp, OK_FRAME), (http, HTTP_OK)):
        await loop.create_server(lambda answer=answer: Answering(answer), *address, backlog=1024)
    await asyncio.Event().wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.null", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tcp-address", required=True)
    parser.add_argument("--http-address", required=True)
    # The null server ignores the flags of a row.
    args, _ = parser.parse_known_args()
    import uvloop

    uvloop.run(serve(parse_address(args.tcp_address), parse_address(args.http_address)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
