"""The disk usage of a folder in which a server writes."""

import os
from contextlib import suppress
from pathlib import Path


def disk_in_use(folder: Path) -> int:
    """Return the bytes of all files below *folder*; files removed during the scan count as 0."""
    found = 0
    # pathlib's search would fail at a folder that was removed after it had been listed.
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found += Path(parent, name).stat().st_size
    return found
