import sys

from nsqtools.nsq_stat.cli import main

sys.exit(main())
