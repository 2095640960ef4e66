"""The ``nsq_peek`` command."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqcore.options.options import parse
from nsqtools.nsq_peek.options import PeekOptions
from nsqtools.process import run

if TYPE_CHECKING:
    import asyncio


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(PeekOptions, "nsq_peek", sys.argv[1:] if argv is None else argv)

    async def work(stop: "asyncio.Event") -> None:
        # Loading this is most of a start, so it comes when signals are already handled.
        from nsqtools.nsq_peek.showing import show

        await show(options, stop)

    return run(work)
