"""The ``nsqadmin`` command."""

import sys
from typing import TYPE_CHECKING

from nsqadmin.memory import return_large_blocks
from nsqadmin.options import NsqadminOptions
from nsqcore.options.options import parse
from nsqcore.process.lifecycle import run
from nsqcore.process.logs import Log
from nsqcore.version import banner

if TYPE_CHECKING:
    import asyncio


def main() -> None:
    options = parse(NsqadminOptions, "nsqadmin", sys.argv[1:])
    return_large_blocks()
    log = Log(options.log_prefix, options.log_level)
    log.info("%s", banner("nsqadmin"))

    async def start(stop: "asyncio.Event") -> None:
        from nsqcore.http.https_sockets import open_http

        sockets = open_http(options)
        # Loading this module is most of the start; the ports are open by now.
        from nsqadmin.daemon import serve

        await serve(options, log, stop, sockets)

    sys.exit(run("nsqadmin", start, log))
