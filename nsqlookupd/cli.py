"""The ``nsqlookupd`` command."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqcore.options.options import parse
from nsqcore.process import lifecycle
from nsqcore.process.logs import Log
from nsqlookupd.options import NsqlookupdOptions

if TYPE_CHECKING:
    import asyncio


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(NsqlookupdOptions, "nsqlookupd", sys.argv[1:] if argv is None else argv)
    log = Log(options.log_prefix, options.log_level)

    async def run(stop: "asyncio.Event") -> None:
        from nsqlookupd.opening import open_all

        opened = open_all(options, log)
        # Most of the start-up time is this import, so it comes after the ports are open.
        from nsqlookupd.daemon import run_until

        await run_until(stop, options, log, opened)

    return lifecycle.run("nsqlookupd", run, log)
