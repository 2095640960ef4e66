"""Health names what could not be written, until it can be written."""

import pytest

from nsqd.server.health import Health, checkpoint_of


@pytest.fixture
def health():
    return Health()


def test_health_is_ok_until_failure(health):
    assert health.ok
    assert str(health) == "OK"


def test_health_names_first_reason(health):
    health.failed("metadata", "permission denied")
    health.publish_failed("t", "no space left on device", 100)
    assert not health.ok
    assert str(health) == "NOK - permission denied"


def test_failure_lasts_until_the_same_operation_works(health):
    health.failed("metadata", "permission denied")
    health.publish_failed("t", "no space left on device", 100)
    health.worked("metadata")
    assert str(health) == "NOK - no space left on device"
    health.publish_worked("another")
    assert not health.ok
    health.publish_worked("t")
    assert health.ok


def test_failure_is_news_once_and_again_when_its_reason_changes(health):
    assert health.publish_failed("t", "no space left on device", 1)
    assert not health.publish_failed("t", "no space left on device", 1)
    assert health.publish_failed("t", "input/output error", 1)
    health.publish_worked("t")
    assert health.publish_failed("t", "input/output error", 1)


def test_last_refused_publish_is_remembered_with_its_size(health):
    health.publish_failed("t", "no space left on device", 100)
    health.publish_failed("t", "no space left on device", 5000)
    assert health.refused == {"t": 5000}
    health.publish_worked("t")
    assert health.refused == {}


def test_checkpoint_of_replica_log_fails_apart_from_that_of_its_topic(health):
    health.failed(checkpoint_of("t", "home"), "no space left on device")
    health.worked(checkpoint_of("t"))
    assert not health.ok
    health.worked(checkpoint_of("t", "home"))
    assert health.ok
