import sys

from nsqtools.nsq_tail.cli import main

sys.exit(main())
