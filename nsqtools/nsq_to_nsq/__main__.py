import sys

from nsqtools.nsq_to_nsq.cli import main

sys.exit(main())
