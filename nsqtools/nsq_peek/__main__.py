"""The ``nsq_peek`` command."""

import sys

from nsqtools.nsq_peek.options import PeekOptions
from nsqtools.process import tool

main = tool(PeekOptions, "nsqtools.nsq_peek.peek:peek")

if __name__ == "__main__":
    sys.exit(main())
