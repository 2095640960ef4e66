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
        # Most of a start is loading this; a signal is heeded by now.
        from nsqtools.nsq_to_nsq.copying import copy_all

        await copy_all(options, stop)

    return run(work)
