"""The ``nsq_to_nsq`` command."""

import sys

from nsqtools.nsq_to_nsq.options import ToNsqdOptions
from nsqtools.process import tool

main = tool(ToNsqdOptions, "nsqtools.nsq_to_nsq.copier:copy_all")

if __name__ == "__main__":
    sys.exit(main())
