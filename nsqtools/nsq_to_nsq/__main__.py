"""The ``nsq_to_nsq`` command."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqtools.nsq_to_nsq.options import PROGRAM, ToNsqdOptions
from nsqtools.process import run_tool

if TYPE_CHECKING:
    import asyncio


async def work(options: ToNsqdOptions, stop: "asyncio.Event") -> None:
    # Loading this is most of a start, so it comes when signals are already handled.
    from nsqtools.nsq_to_nsq.copying import copy_all

    await copy_all(options, stop)


def main(argv: Sequence[str] | None = None) -> int:
    return run_tool(ToNsqdOptions, PROGRAM, argv, work)


if __name__ == "__main__":
    sys.exit(main())
