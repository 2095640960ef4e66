"""A text of very many messages, published over HTTP slice by slice."""

import asyncio

import pytest

from nsqcore.http.api import ApiError
from nsqcore.process.logs import Log, LogLevel
from nsqd.protocol.lines import WINDOW
from nsqd.server.http.publish import PublishApi
from tests.support.http_request import Asked
from tests.support.turns import Bench

# Some five slices.
TEXT = b"x\n" * (5 * WINDOW // 2)


@pytest.fixture
async def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
async def publishing(bench):
    """A batch of which a slice is published."""
    api = PublishApi(bench.broker, bench.write_batch, Log("[test] ", LogLevel.FATAL))
    task = asyncio.create_task(api.mpub(Asked(TEXT, topic="t")))
    topic = bench.broker.topic("t", 0)
    while not topic.message_count:  # noqa: ASYNC110 - turns send no event
        await asyncio.sleep(0)
    return task


async def test_text_that_began_before_drain_is_published_whole_and_drain_waits(bench, publishing):
    bench.broker.draining = True
    assert not bench.broker.is_idle

    answer = await publishing

    assert answer.status == 200
    assert bench.broker.topics["t"].message_count == TEXT.count(b"\n")
    assert bench.broker.is_idle


async def test_drain_does_not_wait_for_text_that_was_broken_off(bench, publishing):
    bench.broker.delete_topic("t")

    with pytest.raises(ApiError, match="EXITING"):
        await publishing

    assert bench.broker.is_idle
