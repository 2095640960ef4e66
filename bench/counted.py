"""``python -m bench.counted FLAG...``: runs nsqd and counts its live objects by type at SIGUSR2."""

import gc
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from bench.load import LoadError
from nsqd.cli import main

_WAIT_S: Final = 30.0


def _file_of(pid: int) -> Path:
    return Path(tempfile.gettempdir()) / f"nsqd-objects-{pid}.json"


def objects_of(pid: int) -> Counter[str]:
    """Return how many objects of each type the nsqd with this pid has, after a collection.

    Objects of its start do not count. Raises LoadError if it does not answer.
    """
    path = _file_of(pid)
    os.kill(pid, signal.SIGUSR2)
    deadline = time.monotonic() + _WAIT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise LoadError("nsqd does not count its objects")
        time.sleep(0.1)
    counts = json.loads(path.read_bytes())
    path.unlink()
    return Counter(counts)


def _count(_number: int, _frame: object) -> None:
    gc.collect()
    counts = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
    path = _file_of(os.getpid())
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(counts))
    unfinished.replace(path)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, _count)
    sys.exit(main(sys.argv[1:]))
