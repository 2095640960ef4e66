"""The ``nsqadmin`` command."""

import sys

from nsqadmin.daemon import serve
from nsqadmin.memory import return_large_blocks
from nsqadmin.options import NsqadminOptions
from nsqcore.service.lifecycle import run
from nsqcore.service.logs import Log
from nsqcore.service.options import parse
from nsqcore.version import banner


def main() -> None:
    options = parse(NsqadminOptions, "nsqadmin", sys.argv[1:])
    return_large_blocks()
    log = Log(options.log_prefix, options.log_level)
    log.info("%s", banner("nsqadmin"))
    sys.exit(run("nsqadmin", lambda stop: serve(options, log, stop), log))
