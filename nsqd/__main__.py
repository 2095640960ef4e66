import sys

from nsqd.cli import main

sys.exit(main())
