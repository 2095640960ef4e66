import sys

from nsqtools.nsq_to_http.cli import main

sys.exit(main())
