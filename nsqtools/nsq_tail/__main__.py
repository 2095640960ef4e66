"""The ``nsq_tail`` command."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqtools.nsq_tail.options import PROGRAM, TailOptions
from nsqtools.process import run_tool

if TYPE_CHECKING:
    import asyncio


async def work(options: TailOptions, stop: "asyncio.Event") -> None:
    # Loading this is most of a start, so it comes when signals are already handled.
    from nsqtools.nsq_tail.tailing import tail

    await tail(options, stop)


def main(argv: Sequence[str] | None = None) -> int:
    return run_tool(TailOptions, PROGRAM, argv, work)


if __name__ == "__main__":
    sys.exit(main())
