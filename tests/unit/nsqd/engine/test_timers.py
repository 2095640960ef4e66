"""A channel is served once, at the earliest of the requested times."""

import pytest

from nsqd.engine.channel import NEVER, Channel
from nsqd.engine.timers import Timers
from nsqd.log.tail import MessageLog


@pytest.fixture
def channel():
    return Channel("t", "c", MessageLog(None, 1, 10), 10)


@pytest.fixture
def other():
    return Channel("t", "other", MessageLog(None, 1, 10), 10)


def test_earliest_of_several_times_counts_and_the_others_mean_nothing(channel):
    timers = Timers()
    for when_ns in (50, 30, 40):
        timers.schedule(channel, when_ns)

    assert (timers.next_ns(), timers.take_due(29)) == (30, [])
    assert timers.take_due(30) == [channel]
    assert (timers.take_due(100), channel.wake_ns) == ([], NEVER)


def test_channels_come_in_order_of_their_times(channel, other):
    timers = Timers()
    timers.schedule(channel, 20)
    timers.schedule(other, 10)

    assert timers.take_due(20) == [other, channel]
    assert timers.next_ns() is None


def test_timers_skip_deleted_and_forgotten_channels(channel, other):
    timers = Timers()
    timers.schedule(channel, 20)
    timers.schedule(other, 10)
    other.deleted = True
    timers.forget(channel)

    assert timers.next_ns() == 10
    assert timers.take_due(20) == []


def test_timers_drop_stale_entries(channel, other):
    timers = Timers()
    timers.schedule(other, 10**16)
    for near_ns in range(10_000):
        timers.schedule(channel, 10**15)
        timers.schedule(channel, near_ns)
        assert timers.take_due(near_ns) == [channel]
    timers.schedule(channel, 10**15)

    assert len(timers._heap) < 200
    assert timers.take_due(10**16) == [channel, other]
    assert timers.next_ns() is None
