"""The version clients see, and the banner every daemon prints."""

import platform
from typing import Final

# Clients negotiate by this number; it names the NSQ release whose behaviour we mirror.
NSQ_VERSION: Final = "1.3.0"
# What askers of the HTTP API accept: answers without an envelope around them.
ACCEPT: Final = "application/vnd.nsq; version=1.0"


def banner(program: str) -> str:
    """Return ``nsqd v1.3.0 (built w/python3.11)``, the shape test harnesses of other people parse."""
    major, minor, _ = platform.python_version_tuple()
    return f"{program} v{NSQ_VERSION} (built w/python{major}.{minor})"
