"""The ``nsq_to_http`` command."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqcore.options.options import parse
from nsqtools.nsq_to_http.options import PROGRAM, ToHttpOptions
from nsqtools.process import run

if TYPE_CHECKING:
    import asyncio


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(ToHttpOptions, PROGRAM, sys.argv[1:] if argv is None else argv)

    async def work(stop: "asyncio.Event") -> None:
        # Loading this is most of a start, so it comes when signals are already handled.
        from nsqtools.nsq_to_http.consuming import send_all

        await send_all(options, stop)

    return run(work)
