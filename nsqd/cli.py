"""The ``nsqd`` command."""

import sys
from collections.abc import Sequence

from nsqcore.service import lifecycle
from nsqcore.service.logs import Log
from nsqcore.service.options import parse
from nsqd.options import NsqdOptions
from nsqd.server.daemon import run_until


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(NsqdOptions, "nsqd", sys.argv[1:] if argv is None else argv)
    log = Log(options.log_prefix, options.log_level)
    return lifecycle.run("nsqd", lambda stop: run_until(stop, options, log), log)
