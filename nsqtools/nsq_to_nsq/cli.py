"""The ``nsq_to_nsq`` command."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqcore.options.options import parse
from nsqtools.nsq_to_nsq.options import PROGRAM, ToNsqdOptions
from nsqtools.process import run

if TYPE_CHECKING:
    import asyncio


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(ToNsqdOptions, PROGRAM, sys.argv[1:] if argv is None else argv)

    async def work(stop: "asyncio.Event") -> None:
        # Loading this is most of a start, so it comes when signals are already handled.
        from nsqtools.nsq_to_nsq.copying import copy_all

        await copy_all(options, stop)

    return run(work)
