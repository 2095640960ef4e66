"""The compiled build: ``NSQD_COMPILE=1 pip install .`` turns nsqd's hot path into C with mypyc.

All else about the package stands in pyproject.toml. The modules have no behaviour of their own when they are
compiled; `nsqd --version` and `/info` say which build is running.
"""

import os
import tomllib
from pathlib import Path
from typing import Any, Final

from setuptools import setup

# What runs for each message, or for each read from a socket.
COMPILED: Final = {
    "nsqd.engine": (
        "block",
        "broker",
        "channel",
        "consumer",
        "consuming",
        "deferred",
        "gaps",
        "ids",
        "inflight",
        "lines",
        "log",
        "mpub",
        "owed",
        "publishing",
        "reading",
        "replies",
        "sequences",
        "session",
        "topic",
        "unread",
    ),
    "nsqd.storage": ("layout", "segment", "stored_log", "topic_store"),
    "nsqd.server": ("busy_poll", "clock", "delivery", "health", "tcp", "turn"),
}

_ONCE: Final = "runs at a start, at a stop, or when something is created"
_ASKED: Final = "runs when somebody asks"
_WAITS: Final = "waits for the network or the disk"
LEFT_OUT: Final = {
    "nsqd.engine": {
        "authorization": "runs once for a line of a connection",
        "clock": "holds a number",
        "draining": _ASKED,
        "latency": "spends its time in a sort",
        "limits": "holds numbers",
        "negotiation": "runs once for a connection",
        "notes": "runs when a channel changes",
        "patterns": "runs once for an AUTH",
        "remains": _ASKED,
        "states": "holds a table",
        "topology": "runs once for a subscription",
    },
    "nsqd.storage": {
        "adopt": _ONCE,
        "checkpoint": "spends its time in json",
        "checkpoint_slots": _WAITS,
        "compaction": "spends its time in reads and writes of many megabytes",
        "data_path": _ONCE,
        "dirlock": _ONCE,
        "disk": "is the seam at which tests put another disk",
        "diskqueue": _ONCE,
        "examine": _ASKED,
        "metadata": _WAITS,
        "recovery": _ONCE,
        "rehearsal": _ONCE,
        "reservation": _WAITS,
        "segment_index": "runs once for a segment",
        "segments_on_disk": _ONCE,
        "spare": _WAITS,
        "version1": _ONCE,
    },
    "nsqd.server": {
        "auth": _WAITS,
        "availability": _ASKED,
        "changes": _WAITS,
        "checkpoints": "runs once a second",
        "daemon": _ONCE,
        "http": _ONCE,
        "http_auth": _ASKED,
        "http_drain": _ASKED,
        "http_front": "spends its time in string methods",
        "http_info": _ASKED,
        "http_log": _ASKED,
        "http_publish": _ASKED,
        "http_topics": _ASKED,
        "layers": "spends its time in OpenSSL and the compressors",
        "lookup_connection": _WAITS,
        "lookup_peer": _WAITS,
        "lookup_session": _WAITS,
        "metrics": _ASKED,
        "opening": _ONCE,
        "plain_publish": "spends its time in string methods",
        "stats": _ASKED,
        "stats_text": _ASKED,
        "statsd": "runs once a minute",
        "tls": _ONCE,
    },
}


def compiled() -> dict[str, Any]:
    """What setuptools is to build besides the Python files."""
    from mypyc.build import mypycify

    files = [
        f"{package.replace('.', '/')}/{module}.py"
        for package, modules in COMPILED.items()
        for module in modules
    ]
    return {"ext_modules": mypycify(files, opt_level="3", group_name="nsqd")}


if __name__ == "__main__":
    if os.environ.get("NSQD_COMPILE") != "1":
        setup()
    else:
        try:
            extra = compiled()
        except ImportError:
            # pip asks first what is needed to build; with this answer it installs it. What the modules import
            # is needed for its types.
            project = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text())["project"]
            extra = {"setup_requires": ["mypy>=1.18", "types-setuptools", *project["dependencies"]]}
        setup(**extra)
