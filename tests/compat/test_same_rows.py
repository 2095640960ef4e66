"""Every "same" of the compatibility table, tested on the original's programs where they are installed."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.nursery import ROOT
from tests.support.processes import GO_BIN, go_program

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(900)]

FEWEST = 500  # tests, counted with their cases; fewer mean that some were not found


@pytest.mark.skipif(
    go_program("nsqd") is None, reason=f"the original's programs are neither in ${GO_BIN} nor on PATH"
)
def test_original_passes_proofs_of_what_is_the_same(announce):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "tests/integration"],
        cwd=ROOT,
        env={**os.environ, "NSQ_UNDER_TEST": "original"},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-2000:]

    assert done.returncode == 0, done.stdout[-20_000:]
    found = re.search(r"(\d+) passed", last)
    assert found is not None, last
    assert int(found[1]) >= FEWEST, last
    assert not re.search(r"\d+ (failed|error)", last), last
    announce(f"what is the same, on the original: {last.strip('= ')}")
