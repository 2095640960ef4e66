"""The ``to_nsq`` command."""

import sys

from nsqtools.process import tool
from nsqtools.to_nsq.options import ToNsqOptions

main = tool(ToNsqOptions, "nsqtools.to_nsq.stdin:publish")

if __name__ == "__main__":
    sys.exit(main())
