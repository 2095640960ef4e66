"""The ``to_nsq`` command."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqtools.process import run_tool
from nsqtools.to_nsq.options import PROGRAM, ToNsqOptions

if TYPE_CHECKING:
    import asyncio


async def work(options: ToNsqOptions, stop: "asyncio.Event") -> None:
    # Loading this is most of a start, so it comes when signals are already handled.
    from nsqtools.to_nsq.reading import publish

    await publish(options, stop)


def main(argv: Sequence[str] | None = None) -> int:
    return run_tool(ToNsqOptions, PROGRAM, argv, work)


if __name__ == "__main__":
    sys.exit(main())
