"""The ``to_nsq`` command."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqcore.options.options import parse
from nsqtools.process import run
from nsqtools.to_nsq.options import PROGRAM, ToNsqOptions

if TYPE_CHECKING:
    import asyncio


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(ToNsqOptions, PROGRAM, sys.argv[1:] if argv is None else argv)

    async def work(stop: "asyncio.Event") -> None:
        # Loading this is most of a start, so it comes when signals are already handled.
        from nsqtools.to_nsq.reading import publish

        await publish(options, stop)

    return run(work)
