"""The ``nsq_tail`` command."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqcore.options.options import parse
from nsqtools.nsq_tail.options import PROGRAM, TailOptions
from nsqtools.process import run

if TYPE_CHECKING:
    import asyncio


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(TailOptions, PROGRAM, sys.argv[1:] if argv is None else argv)

    async def work(stop: "asyncio.Event") -> None:
        # Loading this is most of a start, so it comes when signals are already handled.
        from nsqtools.nsq_tail.tailing import tail

        await tail(options, stop)

    return run(work)
