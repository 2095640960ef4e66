"""The fixtures that ansq's tests ask for: its published archive has the tests, but not their conftest.py.

Written from how the tests use them: servers on NSQ's default ports that can be stopped immediately
and started again on the same data, and a way to wait for something. Loaded with ``-p ansq_fixtures``.
"""

import asyncio
import functools
import inspect
import time

import pytest
import servers


@pytest.fixture
def create_nsqd(tmp_path):
    return functools.partial(servers.nsqd, tmp_path)


@pytest.fixture
def create_nsqlookupd():
    return servers.nsqlookupd


@pytest.fixture
async def nsqd(create_nsqd):
    async with create_nsqd() as server:
        yield server


@pytest.fixture
def wait_for():
    async def wait(condition, timeout=30.0):
        deadline = time.monotonic() + timeout
        while True:
            met = condition()
            if inspect.isawaitable(met):
                met = await met
            if met:
                return
            assert time.monotonic() < deadline, "the condition was not met in time"
            await asyncio.sleep(0.05)

    return wait
