"""pynsq, the official Python client: its Reader and Writer, and the suite of its repository."""

import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.compat.client_suite import Client, environment, is_reference_run, run, unpack

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(900)]

# The suite was written for tornado 6.0: later versions run a non-blocking socket's read through ssl in a way
# that pynsq's snappy and TLS sockets do not expect. The test case of tornado 6.0 does not work with pytest 8.
PYNSQ = Client(
    "pynsq",
    "0.9.1",
    (
        "tornado==6.0.4",
        "pytest==7.4.4",
        "pytest-asyncio==0.23.8",
        "pytest-timeout==2.3.1",
        "python-snappy",
        "mock",
    ),
)
CASES = 9
SUITE = 75

# pynsq's registry archive has no tests. They come from the repository at the release's tag, or from a copy of
# that repository (a folder or an archive) which this variable names.
COPY = "NSQ_COMPAT_PYNSQ"
REPOSITORY = "https://github.com/nsqio/pynsq/archive/refs/tags/v0.9.1.tar.gz"


def repository(folder: Path) -> Path:
    copy = Path(os.environ.get(COPY, ""))
    if copy.is_dir() and copy.name:
        return copy
    if not copy.is_file():
        copy = folder / "pynsq.tar.gz"
        folder.mkdir()
        try:
            with urllib.request.urlopen(REPOSITORY, timeout=20) as answer:
                copy.write_bytes(answer.read())
        except (urllib.error.URLError, TimeoutError) as error:
            pytest.skip(f"pynsq's repository cannot be reached ({error}) and {COPY} names no copy of it")
    return unpack(copy, folder / "tree")


def test_readers_and_writers_of_pynsq_work(tmp_path, announce):
    # The original loses a message that is published just before kill -9: only ours promises durability.
    left_out = ("-k", "not kill") if is_reference_run() else ()

    outcome = run(
        environment(PYNSQ),
        Path(__file__).parent / "cases" / "pynsq_cases.py",
        tmp_path / "run",
        left_out,
        ini="asyncio_mode = auto",
    )
    announce(f"pynsq {PYNSQ.version}, our cases: {outcome}")

    outcome.must_be_all_passed(CASES - bool(left_out))


def test_suite_of_pynsq_passes(tmp_path, announce):
    source = repository(tmp_path / "source")

    outcome = run(environment(PYNSQ), source / "tests", tmp_path / "run", ())
    announce(f"pynsq {PYNSQ.version}, its suite: {outcome}")

    outcome.must_be_all_passed(SUITE)
