"""The files that the process of a test has open."""

import os
from pathlib import Path

_OF_THIS_PROCESS = Path("/proc/self/fd")


def open_below(folder: Path) -> list[str]:
    """Return the open files and folders below *folder*, and itself, once for each descriptor.

    All descriptors of the process may become fewer at any time, when the garbage collector closes one of an
    earlier test.
    """
    found = []
    for entry in _OF_THIS_PROCESS.iterdir():
        try:
            path = str(entry.readlink())
        except OSError:
            continue  # closed since then, or that of this loop
        if path == str(folder) or path.startswith(f"{folder}{os.sep}"):
            found.append(path)
    return sorted(found)
