"""Which build this is: the hot path as Python, or compiled to C (see setup.py)."""

from typing import Final

from nsqcore.version import banner
from nsqd.engine import block

BUILD: Final = "pure" if block.__file__.endswith(".py") else "compiled"


def nsqd_banner() -> str:
    """What ``nsqd --version`` prints: ``nsqd v1.3.0 (built w/python3.11-pure)``."""
    return f"{banner('nsqd')[:-1]}-{BUILD})"
