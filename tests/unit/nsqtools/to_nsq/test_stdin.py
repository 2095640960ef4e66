"""What to_nsq reports at its end about the messages that it sent."""

import asyncio

import pytest

from nsqtools.process import Failed
from nsqtools.to_nsq.publisher import Publisher
from nsqtools.to_nsq.stdin import _check_outcome


async def judged(sent, confirmed, failure=None):
    publishing = Publisher("t", [])
    publishing.sent, publishing.confirmed, publishing.failure = sent, confirmed, failure
    feeding = asyncio.create_task(asyncio.sleep(0))
    await feeding
    _check_outcome(publishing, feeding, {"127.0.0.1:4150": None})


async def test_confirmed_publishes_are_success():
    await judged(3, 3)


async def test_unconfirmed_publish_is_error_at_end():
    with pytest.raises(Failed, match="no confirmation came in time; of 3 records 2 were confirmed by nsqd"):
        await judged(3, 2)


async def test_failure_is_named_with_how_many_were_confirmed():
    with pytest.raises(Failed, match="broken; of 3 records 1 were confirmed by nsqd"):
        await judged(3, 1, OSError("broken"))
