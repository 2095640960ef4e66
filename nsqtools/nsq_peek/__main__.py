import sys

from nsqtools.nsq_peek.cli import main

sys.exit(main())
