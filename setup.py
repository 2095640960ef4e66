"""The compiled build: ``NSQD_COMPILE=1 pip install .`` turns nsqd's hot path into C with mypyc.

Everything else about the package is in pyproject.toml. Compiled modules behave as the interpreted ones do;
`nsqd --version` and `/info` say which build is running.
"""

import importlib.util
import os
import sys
import tomllib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from setuptools import setup
from setuptools.command.build_ext import build_ext

# The modules that run for each message, or for each read from a socket.
COMPILED: Final = {
    "nsqd.log": (
        "batches",
        "cache",
        "encoder",
        "frames",
        "gaps",
        "had",
        "headers",
        "ids",
        "layout",
        "open_files",
        "pages",
        "ranges",
        "scattered",
        "segment",
        "segment_writer",
        "segments",
        "shrinking",
        "starts",
        "syncing",
        "tail",
        "walk",
        "writer",
    ),
    "nsqd.engine": (
        "alone",
        "answered",
        "bounds",
        "broker",
        "replica_topic",
        "channel",
        "clock",
        "credit",
        "deaths",
        "dedup",
        "deferred",
        "delivering",
        "inflight",
        "journal",
        "owed",
        "owners",
        "sequences",
        "staging",
        "topic",
        "timers",
        "unread",
        "waiting",
    ),
    "nsqd.protocol": (
        "batch",
        "consume",
        "conversation",
        "extended",
        "lines",
        "publish",
        "reading",
        "replies",
        "session",
    ),
    # A class that inherits from a compiled class must be compiled.
    "nsqd.storage": ("copy_store", "topic_store"),
    "nsqd.server": (
        "busy_poll",
        "clock",
        "deadlines",
        "delivery",
        "fsync",
        "health",
        "heartbeats",
        "held",
        "in_turn",
        "portions",
        "storing",
        "tcp",
        "turn",
    ),
}

_ONCE: Final = "runs at a start, at a stop, or when something is created"
_ASKED: Final = "runs when somebody asks"
_POLICY: Final = "runs where a policy says something"
_MEETS: Final = "runs when two nsqd that have the same log meet"
_WAITS: Final = "waits for the network or the disk"
LEFT_OUT: Final = {
    "nsqd.log": {
        "cursor": "runs for a block of messages",
        "compaction": "spends its time in reads and writes of many megabytes",
        "disk": "is the seam at which tests put another disk",
        "finding": _ONCE,
        "holes": _ASKED,
        "happened": _ONCE,
        "matching": "spends its time in searches in C",
        "place": _ASKED,
        "recovery": _ONCE,
        "retention": "runs once for a look at what is wanted",
        "search": "spends its time in reads and in searches in C",
        "segment_index": "runs once for a segment",
        "tap": "is the seam at which copies are made",
        "wanted": "spends its time in searches in C",
    },
    "nsqd.engine": {
        "age": _ASKED,
        "all_logs": _ASKED,
        "carried": _MEETS,
        "draining": _ASKED,
        "facts": _MEETS,
        "finishing": _MEETS,
        "generations": _ONCE,
        "latency": "spends its time in a sort",
        "letting_go": _POLICY,
        "handling": _ASKED,
        "limits": "holds numbers",
        "notes": "runs when a channel changes",
        "remains": _ASKED,
        "replay": _ONCE,
        "sending_back": _ASKED,
        "seeking": _ASKED,
        "settings": "holds numbers",
        "standing": _ASKED,
        "state": "runs once a second",
        "topology": "runs once for a subscription",
        "weight": _POLICY,
        "withholding": _MEETS,
    },
    "nsqd.policies": {
        "definition": _ASKED,
        "effects": _ASKED,
        "policy": _ASKED,
        "quantities": _ASKED,
        "written": _ASKED,
    },
    "nsqd.protocol": {
        "auth": "runs once for a line of a connection",
        "identify": "runs once for a connection",
        "patterns": "runs once for an AUTH",
        "states": "holds a table",
    },
    "nsqd.replication": {
        "appointing": _ONCE,
        "carried_copy": _ASKED,
        "carrier": _ASKED,
        "choosing": _ASKED,
        "copied_topics": "runs once for a turn of a home",
        "copies": _ONCE,
        "copy_folder": "runs once for a turn of a home",
        "copy_jobs": _WAITS,
        "durable": _WAITS,
        "fields": "runs once for a turn of a home",
        "for_good": _WAITS,
        "fellow_hears": _ASKED,
        "fellows": _ASKED,
        "fellowship": _ASKED,
        "frames": "holds values",
        "framing": "runs once for a turn of a home",
        "handed_over": _WAITS,
        "home": "runs once for a turn",
        "home_link": "runs once for a turn",
        "keeper": "runs once for a turn of a home",
        "keeper_states": "holds a table",
        "linked": "names a type",
        "holdings": _ASKED,
        "homecoming": _ASKED,
        "inherited": _ASKED,
        "meeting": _ASKED,
        "opening": _ONCE,
        "outgoing": "runs once for a turn",
        "ranks": _ASKED,
        "serving": _ASKED,
        "sound": "runs once for a turn of a home",
        "streaming": "runs once for a turn",
        "streams": "runs once for a file",
        "succession": _ASKED,
        "successors": _ASKED,
        "untold": _WAITS,
        "waits": "runs once for a turn",
        "willing": _ASKED,
    },
    "nsqd.storage": {
        "carried": _ONCE,
        "checkpoint": "spends its time in json",
        "data_path": _ONCE,
        "keeping": "runs once a second",
        "lock": _ONCE,
        "metadata": _WAITS,
        "reservation": _WAITS,
        "restoring": _ONCE,
        "slots": _WAITS,
        "spare": _WAITS,
    },
    "nsqd.storage.takeover": {"adopt": _ONCE, "diskqueue": _ONCE},
    "nsqd.server": {
        "allocator": _ONCE,
        "auth": _WAITS,
        "availability": _ASKED,
        "changes": _WAITS,
        "complaints": "runs when a client errs",
        "daemon": _ONCE,
        "dead_letters": _POLICY,
        "layers": "spends its time in OpenSSL and the compressors",
        "opening": _ONCE,
        "policies": _ASKED,
        "space": "runs once a second",
        "tls": _ONCE,
        "upgrades": "runs once for a connection",
        "upkeep": "runs once a second",
        "watermark": "runs once a second",
    },
    "nsqd.server.http": {
        "auth": _ASKED,
        "carried": _ASKED,
        "dead_letters": _ASKED,
        "drain": _ASKED,
        "front": "spends its time in string methods",
        "handling": _ASKED,
        "info": _ASKED,
        "log": _ASKED,
        "policies": _ASKED,
        "messages": _ASKED,
        "openapi": _ASKED,
        "plain_publish": "spends its time in string methods",
        "publish": _ASKED,
        "routes": _ONCE,
        "topics": _ASKED,
    },
    "nsqd.server.replication": {
        "asking": _WAITS,
        "assembly": _ONCE,
        "carrying": _WAITS,
        "choice": _ASKED,
        "connections": _WAITS,
        "copying": _WAITS,
        "departure": _WAITS,
        "handing": _WAITS,
        "keeping": _WAITS,
        "leaving": _WAITS,
        "left_behind": _ONCE,
        "linking": _WAITS,
        "our_keepers": _WAITS,
        "secret": _ASKED,
        "shown": _ASKED,
        "standing_in": _WAITS,
        "troubles": _WAITS,
        "wanted": _ONCE,
    },
    "nsqd.server.messages": {"finding": _ASKED, "query": _ASKED, "shown": _ASKED},
    "nsqd.server.lookup": {"connection": _WAITS, "peer": _WAITS, "session": _WAITS},
    "nsqd.server.figures": {
        "copies": _ASKED,
        "metrics": _ASKED,
        "stats": _ASKED,
        "stats_text": _ASKED,
        "statsd": "runs once a minute",
    },
}


def compiled() -> dict[str, Any]:
    """Return what setuptools builds in addition to the Python files."""
    from mypyc.build import mypycify

    files = [
        f"{package.replace('.', '/')}/{module}.py"
        for package, modules in COMPILED.items()
        for module in modules
    ]
    # Level 0 is for tests and takes a third of the time: it omits optimisations and debug information, and
    # each module has its own C file, so that all processors compile.
    level = os.environ.get("NSQD_COMPILE_LEVEL", "3")
    if level != "0":
        return {"ext_modules": mypycify(files, opt_level=level, group_name="nsqd")}
    modules = mypycify(files, opt_level="0", debug_level="0", multi_file=True, group_name="nsqd")
    return {"ext_modules": modules, "cmdclass": {"build_ext": _OnAllProcessors}}


class _OnAllProcessors(build_ext):
    """Compiles several files at a time; setuptools compiles one after the other."""

    def build_extensions(self) -> None:
        compiler = self.compiler
        one_by_one, compile_all = compiler._compile, compiler.compile
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            begun: list[Future[None]] = []

            def begin(*arguments: Any) -> None:
                begun.append(threads.submit(one_by_one, *arguments))

            def compile_and_wait(*arguments: Any, **options: Any) -> list[str]:
                objects: list[str] = compile_all(*arguments, **options)
                for each in begun:
                    each.result()
                return objects

            compiler._compile, compiler.compile = begin, compile_and_wait
            super().build_extensions()


def _foreign(dependencies: list[str]) -> list[str]:
    """Return the dependencies that mypy needs for their types; it finds nsqclient beside this file."""
    return [dependency for dependency in dependencies if dependency != "nsqclient"]


def wanted_for(commands: list[str]) -> dict[str, Any]:
    """Return the arguments that NSQD_COMPILE=1 adds to ``setup`` for these commands."""
    if importlib.util.find_spec("mypyc") is None:
        # pip first asks for the build requirements and installs them. Packages that the modules import are
        # needed for their types.
        project = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text())["project"]
        return {"setup_requires": ["mypy>=1.18", "types-setuptools", *_foreign(project["dependencies"])]}
    # Then pip asks for name and version, for which compiling for half a minute would be wasted.
    return {} if {"dist_info", "egg_info"} & set(commands) else compiled()


if __name__ == "__main__":
    setup(**(wanted_for(sys.argv[1:]) if os.environ.get("NSQD_COMPILE") == "1" else {}))
