"""The ``nsq_to_http`` command."""

import sys

from nsqtools.nsq_to_http.options import ToHttpOptions
from nsqtools.process import tool

main = tool(ToHttpOptions, "nsqtools.nsq_to_http.handler:send_all")

if __name__ == "__main__":
    sys.exit(main())
