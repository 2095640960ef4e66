"""Tests of the memory that the C library keeps, in new processes, because it is set once for a process."""

import os
import subprocess
import sys

from nsqd.server import allocator

# How many pages a process has to be given again for 20 blocks of 4 MiB that it takes and frees.
TAKES_AND_FREES = """
import resource
from nsqd.server.allocator import retain_freed_memory

print(retain_freed_memory())

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

blocks = [b"x" * (4 << 20) for _ in range(4)]
del blocks
before = faults()
for _ in range(5):
    blocks = [b"x" * (4 << 20) for _ in range(4)]
    del blocks
print(faults() - before)
"""
PAGES = 20 * (4 << 20) // os.sysconf("SC_PAGE_SIZE")


def faults(**environ: str) -> tuple[bool, int]:
    inherited = {name: value for name, value in os.environ.items() if name not in allocator.SOMEBODYS}
    out = subprocess.run(
        [sys.executable, "-c", TAKES_AND_FREES],
        env=inherited | environ,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    kept, count = out.split()
    return kept == "True", int(count)


def test_blocks_that_are_freed_and_taken_again_cost_no_pages() -> None:
    kept, count = faults()
    assert kept
    assert count < PAGES / 100


def test_allocator_settings_of_operator_stay() -> None:
    kept, count = faults(MALLOC_TRIM_THRESHOLD_="131072")
    assert not kept
    assert count > PAGES / 2
