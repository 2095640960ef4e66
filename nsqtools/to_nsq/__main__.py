import sys

from nsqtools.to_nsq.cli import main

sys.exit(main())
