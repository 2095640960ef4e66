from datetime import UTC, datetime

import pytest

from nsqadmin.stats import present
from nsqclient.wire.node_error import NodeError

MS, S = 1_000_000, 1_000_000_000


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 ns"),
        (950, "950 ns"),
        (94_300_000, "94.3 ms"),
        (999_600_000, "1,000 ms"),
        (1500 * 1000, "1.5 ms"),
        (12.34 * S, "12.3 s"),
        (59.4 * S, "59.4 s"),
        (60 * S, "1m 00s"),
        (60.484 * S, "1m 00s"),
        (3599.7 * S, "1h 00m"),
        (3 * 3600 * S, "3h 00m"),
        (49 * 3600 * S, "2d 1h"),
    ],
)
def test_durations_have_about_three_digits(nanoseconds, text):
    assert present.duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0, "0"), (0.04, "0"), (0.25, "0.2"), (4, "4"), (99.94, "99.9"), (99.96, "100"), (12345.6, "12,346")],
)
def test_rates_show_decimal_only_where_it_says_something(rate, text):
    assert present.per_second(rate) == text


@pytest.mark.parametrize(
    ("quantile", "text"),
    [
        (0.99, "99th"),
        (0.95, "95th"),
        (0.5, "50th"),
        (0.999, "99.9th"),
        (0.51, "51st"),
        (0.12, "12th"),
        (0.53, "53rd"),
        (0.02, "2nd"),
        (1.0, "100th"),
    ],
)
def test_percentiles_have_their_ordinal(quantile, text):
    assert present.percentile(quantile) == text


def test_counts_have_thousands_separators():
    assert present.count(1234567) == "1,234,567"
    assert [present.plural(number, "node") for number in (0, 1, 2000)] == ["0 nodes", "1 node", "2,000 nodes"]


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (812, "812 B"), (1250, "1.25 kB"), (999_900, "1 MB"), (2.5e13, "25 TB")]
)
def test_sizes_have_about_three_digits(number, text):
    assert present.size(number) == text


def test_time_more_than_a_day_ago_has_date():
    now_s = datetime(2026, 11, 22, 14, 5, 9, tzinfo=UTC).timestamp()

    assert present.time_text(now_s - 600, now_s) == "13:55:09"
    assert present.time_text(now_s - 23 * 3600, now_s) == "15:05:09"
    assert present.time_text(now_s - 25 * 3600, now_s) == "2026-11-21 13:05:09"
    # The clock was set back.
    assert present.time_text(now_s + 49 * 3600, now_s) == "2026-11-24 15:05:09"


def failure(reason="refused", **fields):
    return present.failure(NodeError("GET", "http://a:1/", "a:1", reason, **fields), "nsqd")


def test_failures_name_node_and_say_what_it_did_not_do():
    assert failure("timed out after 5s") == "nsqd a:1 does not answer (timed out after 5s)"
    assert failure(status=404, code="TOPIC_NOT_FOUND") == "nsqd a:1 does not know this topic"
    assert failure(status=404, code="CHANNEL_NOT_FOUND") == "nsqd a:1 does not have this channel"
    assert failure(status=500, code="INTERNAL_ERROR") == "nsqd a:1 answers with an error (INTERNAL_ERROR)"
    assert failure("unusable answer from http://a:1/", status=200).startswith("nsqd a:1 gave an unusable")


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (999_999_999, "999,999,999"), (5_892_216_788, "5.89 bn")]
)
def test_large_counter_fits_into_tile(number, text):
    assert present.counted(number) == text
