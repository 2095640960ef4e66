import sys

from load.cli import main

sys.exit(main())
