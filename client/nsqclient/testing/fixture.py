"""A pytest plugin; pytest finds it wherever this package is installed."""

from collections.abc import Iterator

import pytest

from nsqclient.testing._server import MemoryNsqd


@pytest.fixture
def memory_nsqd() -> Iterator[MemoryNsqd]:
    """An nsqd in memory, empty for each test."""
    with MemoryNsqd() as nsqd:
        yield nsqd
