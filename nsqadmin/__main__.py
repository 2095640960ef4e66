"""``python -m nsqadmin``."""

from nsqadmin.cli import main

main()
