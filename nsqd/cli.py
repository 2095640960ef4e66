"""The ``nsqd`` command."""

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from nsqcore.options.options import parse
from nsqcore.process import lifecycle
from nsqcore.process.logs import Log
from nsqd.options import NsqdOptions

if TYPE_CHECKING:
    import asyncio

# Eight write checkpoints, three compact, and the others do short work such as writing nsqd.dat.
THREADS: Final = 16


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(NsqdOptions, "nsqd", sys.argv[1:] if argv is None else argv)
    log = Log(options.log_prefix, options.log_level)

    # A start creates many objects and hardly any garbage; the daemon enables the collector once it is loaded.
    gc.disable()

    async def run(stop: "asyncio.Event") -> None:
        from nsqcore.process.tls import without_system_authorities
        from nsqd.server.opening import open_all

        opened = open_all(options, log)
        with without_system_authorities():
            import aiohttp  # noqa: F401 - the daemon uses it

        # Half of the start-up time is this import, so it comes after the ports are open.
        from nsqd.server.daemon import Nsqd

        await Nsqd(options, log, opened).run(stop)

    # With a policies file SIGHUP reads it again, also while nsqd is still loading.
    return lifecycle.run("nsqd", run, log, hang_up_stops=not options.policies_file, threads=THREADS)
