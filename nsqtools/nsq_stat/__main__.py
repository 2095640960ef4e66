"""The ``nsq_stat`` command."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqtools.nsq_stat.options import StatOptions
from nsqtools.process import run_tool

if TYPE_CHECKING:
    import asyncio


async def work(options: StatOptions, stop: "asyncio.Event") -> None:
    # Loading this is most of a start, so it comes when signals are already handled.
    from nsqtools.nsq_stat.watching import watch

    await watch(options, stop)


def main(argv: Sequence[str] | None = None) -> int:
    return run_tool(StatOptions, "nsq_stat", argv, work)


if __name__ == "__main__":
    sys.exit(main())
