"""The ``nsqlookupd`` command."""

import sys
from collections.abc import Sequence

from nsqcore.service import lifecycle
from nsqcore.service.logs import Log
from nsqcore.service.options import parse
from nsqlookupd.daemon import run_until
from nsqlookupd.options import NsqlookupdOptions


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(NsqlookupdOptions, "nsqlookupd", sys.argv[1:] if argv is None else argv)
    log = Log(options.log_prefix, options.log_level)
    return lifecycle.run("nsqlookupd", lambda stop: run_until(stop, options, log), log)
