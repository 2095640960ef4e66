import sys

from nsqlookupd.cli import main

sys.exit(main())
