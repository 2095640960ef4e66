"""Starts the source's Python processes so that they find Spark's own Python files compiled.

Spark puts a zip of these files first on the path of every process that it starts. The zip has no bytecode, so
each process compiles some hundred files again, which takes 0.6 seconds of a core before it does anything
else. In a Spark from pip the same files are also unpacked next to the zip, with bytecode.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from sys import executable
from typing import Any, Final

_NAME: Final = "nsq-python"
# Uses only the shell's own commands. The rest of the path stays: --py-files, and the user's own entries.
_SCRIPT: Final = """#!/bin/sh
path=$PYTHONPATH
path=${path#"$SPARK_HOME"/python/lib/pyspark.zip:}
path=${path#"$SPARK_HOME"/python/lib/py4j-*-src.zip:}
path=${path#"$SPARK_HOME"/jars/spark-core_*.jar:}
PYTHONPATH=$path exec PYTHON "$@"
"""


@contextmanager
def unpacked(context: Any) -> Iterator[None]:
    """Make sources that are registered in the block run with such a Python, if possible."""
    before = context.pythonExec
    context.pythonExec = quick_python(before, context.master, getattr(context, "_temp_dir", None))
    try:
        yield
    finally:
        context.pythonExec = before


def quick_python(python: str, master: str, folder: str | None) -> str:
    """Return a script in *folder* that runs *python* without the zip, or *python* itself if that is unsafe.

    It is safe if all processes are on this machine and *python* is the one that runs here, because then the
    Spark that belongs to it is known. Spark removes the folder when it stops.
    """
    if folder is None or not master.startswith("local") or not _is_ours(python) or not _came_with_pip():
        return python
    script = Path(folder, _NAME)
    # Some systems run no programs in their temporary folder.
    with suppress(OSError, subprocess.SubprocessError):
        if not script.exists():
            script.write_text(_SCRIPT.replace("PYTHON ", f"{shlex.quote(executable)} "))
            script.chmod(0o700)
        subprocess.run([script, "-ISc", ""], check=True, timeout=10, capture_output=True)  # noqa: S603 - ours
        return str(script)
    return python


def _is_ours(python: str) -> bool:
    """Whether *python* is the Python of this process, in the same virtual environment."""
    found = shutil.which(python)
    return (
        found is not None
        and Path(found).parent == Path(executable).parent
        and Path(found).resolve() == Path(executable).resolve()
    )


def _came_with_pip() -> bool:
    import pyspark

    home = Path(pyspark.__file__).parent
    used = os.environ.get("SPARK_HOME")
    return (home / "python" / "lib" / "pyspark.zip").exists() and (used is None or Path(used) == home)
