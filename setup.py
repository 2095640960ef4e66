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

# The modules that run for each message, or for each read from a socket. Other modules run rarely, wait for
# the network or the disk, or spend their time in C already. Tests replace `nsqd.log.disk`, so it
# stays interpreted.
COMPILED: Final = {
    "nsqd.log": (
        "appender",
        "cache",
        "cleaner",
        "encoder",
        "frames",
        "gaps",
        "headers",
        "ids",
        "layout",
        "open_files",
        "pages",
        "ranges",
        "segment",
        "segment_writer",
        "segments",
        "starts",
        "tail",
        "walk",
    ),
    "nsqd.engine": (
        "exclusive_ranges",
        "bounds",
        "broker",
        "channel",
        "clock",
        "credit",
        "dead_letter_queue",
        "dedup",
        "deferred",
        "delivering",
        "in_flight",
        "journal",
        "numbering",
        "backlog",
        "staging",
        "topic",
        "timers",
        "pending",
    ),
    "nsqd.protocol": (
        "batch",
        "consume",
        "connection_state",
        "extended",
        "lines",
        "long_body",
        "publish",
        "reading",
        "session",
    ),
    "nsqd.storage": ("topic_log",),
    "nsqd.server": (
        "busy_poll",
        "clock",
        "deadlines",
        "delivery",
        "fsync",
        "health",
        "heartbeats",
        "pending_replies",
        "read_quantum",
        "commit",
        "tcp",
        "write_batch",
    ),
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
    """Return the dependencies that mypy needs for their types; it finds nsqclient next to this file."""
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
