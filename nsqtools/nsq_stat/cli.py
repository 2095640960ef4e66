"""The ``nsq_stat`` command."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqcore.options.options import parse
from nsqtools.nsq_stat.options import StatOptions
from nsqtools.process import run

if TYPE_CHECKING:
    import asyncio


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(StatOptions, "nsq_stat", sys.argv[1:] if argv is None else argv)

    async def work(stop: "asyncio.Event") -> None:
        # Loading this is most of a start, so it comes when signals are already handled.
        from nsqtools.nsq_stat.watching import watch

        await watch(options, stop)

    return run(work)
