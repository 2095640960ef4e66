import sys

from nsqtools.nsq_channel.cli import main

sys.exit(main())
