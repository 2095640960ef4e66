"""The ``nsq_tail`` command."""

import sys

from nsqtools.nsq_tail.options import TailOptions
from nsqtools.process import tool

main = tool(TailOptions, "nsqtools.nsq_tail.tail:tail")

if __name__ == "__main__":
    sys.exit(main())
