import pytest

from nsqd.engine.broker import Broker
from nsqd.engine.limits import Limits
from nsqd.engine.settings import NOTHING, Settings
from nsqd.log.ids import MessageIds

SOME = Settings(max_depth=3)
OTHER = Settings(max_depth=4)


@pytest.fixture
def broker():
    return Broker(MessageIds(1), Limits(), lambda _name: None)


def of_orders(topic_name, channel_name):
    if topic_name != "orders":
        return NOTHING
    return OTHER if channel_name == "billing" else SOME


def test_existing_topics_follow_changed_policies(broker):
    topic = broker.topic("orders", 1)
    channel = broker.channel(topic, "billing")

    broker.apply(of_orders)

    assert topic.settings is SOME
    assert channel.settings is OTHER


def test_new_topics_have_policies(broker):
    broker.apply(of_orders)
    topic = broker.topic("orders", 1)

    assert topic.settings is SOME
    assert broker.channel(topic, "billing").settings is OTHER
    assert broker.channel(topic, "other").settings is SOME
    assert broker.topic("else", 1).settings is NOTHING


@pytest.mark.parametrize(("attempts", "expected"), [(0, 10), (1, 10), (2, 20), (3, 40), (4, 50), (65535, 50)])
def test_delay_grows_with_each_delivery_up_to_its_end(attempts, expected):
    assert Settings(retry_delay_ns=10, retry_delay_max_ns=50).retry_after_ns(attempts) == expected


def test_retry_without_delay_is_immediate():
    assert NOTHING.retry_after_ns(3) == 0


def test_settings_are_bounded_by_bound_only():
    assert not NOTHING.bounded
    assert not Settings(ttl_ns=5).bounded
    assert Settings(max_depth=5).bounded
    assert Settings(max_bytes=5).bounded


def test_dedup_window_retains_finished_messages():
    assert Settings(dedup_window_ns=1).retains
    assert not Settings(ttl_ns=1).retains
