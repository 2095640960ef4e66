"""The ``nsqd`` command."""

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqcore.options.options import parse
from nsqcore.process import lifecycle
from nsqcore.process.logs import Log
from nsqd.options import NsqdOptions

if TYPE_CHECKING:
    import asyncio


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(NsqdOptions, "nsqd", sys.argv[1:] if argv is None else argv)
    log = Log(options.log_prefix, options.log_level)

    # A start makes much and no garbage to speak of; the daemon switches the collector on when it has begun.
    gc.disable()

    async def run(stop: "asyncio.Event") -> None:
        from nsqd.server.opening import open_all

        opened = open_all(options, log)
        # Half of a start is loading this; the ports are open by now.
        from nsqd.server.daemon import Nsqd

        await Nsqd(options, log, opened).run(stop)

    return lifecycle.run("nsqd", run, log)
