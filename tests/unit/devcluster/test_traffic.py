"""The messages that the shop publishes, and its lines of statistics."""

import json

import pytest

from devcluster.traffic import TOPICS, Counts, sample_message
from nsqclient.wire.names import is_valid_name


@pytest.mark.parametrize("topic", TOPICS)
def test_sample_message_is_json_that_names_its_event(topic):
    message = json.loads(json.dumps(sample_message(topic, "run-7")))

    assert message["id"] == "run-7"
    assert message["event"] == topic.removesuffix("s")
    assert is_valid_name(topic)


def test_orders_and_payments_have_members_for_spark_recipes():
    order, payment = sample_message("orders", "run-7"), sample_message("payments", "run-90")

    assert {"order": int, "customer": int, "price": float}.items() <= {
        name: type(value) for name, value in order.items()
    }.items()
    assert order["order"] == 7
    assert 40 <= payment["order"] < 90
    assert payment["paid"] > 0


def test_failures_are_mentioned_only_when_there_are_some():
    assert "failed" not in str(Counts(published=1))
    assert "failed 2" in str(Counts(published=1, failed=2))
