"""The ``nsq_peek`` command."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqtools.nsq_peek.options import PeekOptions
from nsqtools.process import run_tool

if TYPE_CHECKING:
    import asyncio


async def work(options: PeekOptions, stop: "asyncio.Event") -> None:
    # Loading this is most of a start, so it comes when signals are already handled.
    from nsqtools.nsq_peek.showing import show

    await show(options, stop)


def main(argv: Sequence[str] | None = None) -> int:
    return run_tool(PeekOptions, "nsq_peek", argv, work)


if __name__ == "__main__":
    sys.exit(main())
