import pytest

from nsqclient.wire.durations import HOUR, SECOND
from nsqd.engine.settings import Settings
from nsqd.policies.definition import KEYS, BadPolicy, understand


def test_definition_understands_all_settings():
    found = understand(
        {
            "retain_time": "7d",
            "retain_bytes": "10GB",
            "max_depth": 1000,
            "max_bytes": "1GiB",
            "when_full": "drop-oldest",
            "ttl": "1h",
            "max_attempts": 5,
            "retry_delay": "1s",
            "retry_delay_max": "1m",
            "dead_letter_topic": "dead",
            "max_defer": "30d",
            "dedup_window": "10m",
            "replicas": 2,
        }
    )

    assert found == Settings(
        retain_time_ns=168 * HOUR,
        retain_bytes=10 * 10**9,
        max_depth=1000,
        max_bytes=1 << 30,
        drop_oldest=True,
        ttl_ns=HOUR,
        max_attempts=5,
        retry_delay_ns=SECOND,
        retry_delay_max_ns=60 * SECOND,
        dead_letter_topic="dead",
        max_defer_ns=720 * HOUR,
        dedup_window_ns=600 * SECOND,
        replicas=2,
    )
    assert len(KEYS) == 13


def test_delay_that_grows_stops_at_hour_if_nothing_else_is_said():
    assert understand({"retry_delay": "1s"}).retry_delay_max_ns == HOUR
    assert understand({"retry_delay": "2h"}).retry_delay_max_ns == 2 * HOUR


@pytest.mark.parametrize(
    ("definition", "sentence"),
    [
        ({}, "says nothing"),
        ([], "must be a table"),
        (None, "must be a table"),
        ({"max_dept": 5}, "no setting 'max_dept'; did you mean max_depth?"),
        ({"colour": "red"}, "no setting 'colour'"),
        ({7: 5}, "no setting 7"),
        ({"replicas": 9}, "replicas must be a whole number from 0 to 2"),
        ({"max_depth": "many"}, "max_depth must be a whole number"),
        ({"ttl": 60}, "ttl is no duration"),
        ({"max_bytes": "big"}, "max_bytes is no size"),
        ({"max_depth": 5, "when_full": "panic"}, "when_full must be 'reject' or 'drop-oldest'"),
        ({"max_depth": 5, "when_full": []}, "when_full must be 'reject' or 'drop-oldest'"),
        ({"when_full": "reject"}, "when_full needs max_depth or max_bytes"),
        ({"retry_delay_max": "1m"}, "retry_delay_max needs retry_delay"),
        ({"retry_delay": "2m", "retry_delay_max": "1m"}, "shorter than retry_delay"),
        ({"dead_letter_topic": "dead"}, "needs max_attempts or ttl"),
        ({"dead_letter_topic": "d/d", "ttl": "1h"}, "must be the name of a topic"),
        ({"dead_letter_topic": 5, "ttl": "1h"}, "must be the name of a topic"),
    ],
)
def test_bad_definition_is_refused_with_sentence(definition, sentence):
    with pytest.raises(BadPolicy) as refused:
        understand(definition)

    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
