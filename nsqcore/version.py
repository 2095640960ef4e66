"""Which version this is: the release of NSQ whose behaviour it has, and its own."""

import sys
from typing import Final

from nsqclient.wire.version import NSQ_VERSION

# The version of the distribution nsq-cluster. The tests compare pyproject.toml and the charts with it.
VERSION: Final = "0.1.0"


def build(kind: str = "") -> str:
    """Return ``nsq-cluster-0.1.0-python3.11``, and *kind* behind it (``compiled``)."""
    name = f"nsq-cluster-{VERSION}-python{sys.version_info.major}.{sys.version_info.minor}"
    return f"{name}-{kind}" if kind else name


def banner(program: str, kind: str = "") -> str:
    """Return what ``--version`` prints: ``nsqd v1.3.0 (built w/nsq-cluster-0.1.0-python3.11)``.

    Test suites of clients parse it: behind ``w/`` may only be ``a-z``, ``0-9``, ``.`` and ``-``.
    """
    return f"{program} v{NSQ_VERSION} (built w/{build(kind)})"


# A question that is asked again and again says so, and is logged at the debug level only.
POLL_HEADER: Final = "X-Nsq-Purpose"
POLL_HEADERS: Final = {POLL_HEADER: "poll"}
