import sys

from nsqtools.nsq_to_file.cli import main

sys.exit(main())
