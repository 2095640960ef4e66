"""Which build this is: the hot path as Python, or compiled to C (see setup.py)."""

from typing import Final

from nsqcore.version import banner, build
from nsqd.log import frames as block

KIND: Final = "pure" if block.__file__.endswith(".py") else "compiled"
BUILD: Final = build(KIND)


def nsqd_banner() -> str:
    """The output of ``nsqd --version``: ``nsqd v1.3.0 (built w/nsq-cluster-0.1.0-python3.11-pure)``."""
    return banner("nsqd", KIND)
