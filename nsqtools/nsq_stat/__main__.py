"""The ``nsq_stat`` command."""

import sys

from nsqtools.nsq_stat.options import StatOptions
from nsqtools.process import tool

main = tool(StatOptions, "nsqtools.nsq_stat.reports:report")

if __name__ == "__main__":
    sys.exit(main())
