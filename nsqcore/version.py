"""The versions: that of the NSQ whose behaviour this has, and its own."""

import sys
from typing import Final

from nsqclient.wire.version import NSQ_VERSION

# The version of the distribution nsq-cluster. The tests compare pyproject.toml and the charts with it.
VERSION: Final = "0.1.0"


def build(kind: str = "") -> str:
    """Return ``nsq-cluster-0.1.0-python3.11``, followed by *kind* (``compiled``)."""
    name = f"nsq-cluster-{VERSION}-python{sys.version_info.major}.{sys.version_info.minor}"
    return f"{name}-{kind}" if kind else name


def banner(program: str, kind: str = "") -> str:
    """Return what ``--version`` prints: ``nsqd v1.3.0 (built w/nsq-cluster-0.1.0-python3.11)``.

    Test suites of clients parse it: after ``w/`` only ``a-z``, ``0-9``, ``.`` and ``-`` are allowed.
    """
    return f"{program} v{NSQ_VERSION} (built w/{build(kind)})"


# A request that is repeated regularly has this header, and is logged only at the debug level.
POLL_HEADER: Final = "X-Nsq-Purpose"
POLL_HEADERS: Final = {POLL_HEADER: "poll"}
