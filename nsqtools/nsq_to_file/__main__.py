"""The ``nsq_to_file`` command."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqcore.options.options import parse
from nsqcore.process.logs import Log
from nsqtools.nsq_to_file.options import ToFileOptions
from nsqtools.process import run

if TYPE_CHECKING:
    import asyncio


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(ToFileOptions, ToFileOptions.program, sys.argv[1:] if argv is None else argv)
    log = Log(options.log_prefix, options.log_level)

    async def work(stop: "asyncio.Event") -> None:
        # Loading this is most of a start, so it comes when signals are already handled.
        from nsqtools.nsq_to_file.archiver import Archiver

        await Archiver(options, log).run(stop)

    # SIGHUP closes the files; while there are none, log rotation must not end it.
    return run(work, log.fatal, hang_up_stops=False)


if __name__ == "__main__":
    sys.exit(main())
