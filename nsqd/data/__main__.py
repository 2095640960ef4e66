import sys

from nsqd.data.cli import main

sys.exit(main())
