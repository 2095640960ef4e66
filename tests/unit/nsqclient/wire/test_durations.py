import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.wire.durations import MAX_DURATION, meant_duration, parse_duration
from nsqcore.durations import format_duration


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("60s", 60_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("250ms", 250_000_000),
        ("1.5s", 1_500_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("10us", 10_000),
        ("10µs", 10_000),
        ("10μs", 10_000),
        ("-1m", -60_000_000_000),
        ("+2ns", 2),
        ("0.000000001s", 1),
        ("0.0000000001s", 0),
    ],
)
def test_duration_is_read_as_nanoseconds(text, nanoseconds):
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", 'time: invalid duration ""'),
        ("xx", 'time: invalid duration "xx"'),
        ("-", 'time: invalid duration "-"'),
        (".s", 'time: invalid duration ".s"'),
        ("60", 'time: missing unit in duration "60"'),
        ("1h30", 'time: missing unit in duration "1h30"'),
        ("1x", 'time: unknown unit "x" in duration "1x"'),
        ("1 s", 'time: unknown unit " s" in duration "1 s"'),
        ("9999999h", 'time: invalid duration "9999999h"'),
        ("٣s", 'time: invalid duration "٣s"'),
    ],
)
def test_invalid_duration_is_refused_with_sentence_of_nsq(text, sentence):
    with pytest.raises(ValueError) as refused:
        parse_duration(text)

    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (1_000_000_000, "1s"),
        (60_000_000_000, "1m0s"),
        (3_600_000_000_000, "1h0m0s"),
        (223_211_554_300, "3m43.2115543s"),
        (-1_500_000_000, "-1.5s"),
    ],
)
def test_duration_is_written_shortest_way(nanoseconds, text):
    assert format_duration(nanoseconds) == text


@given(st.integers(min_value=-MAX_DURATION, max_value=MAX_DURATION))
def test_duration_survives_writing_and_reading(span):
    assert parse_duration(format_duration(span)) == span


@given(st.text())
def test_text_gives_duration_or_value_error(text):
    try:
        span = parse_duration(text)
    except ValueError:
        return
    assert -MAX_DURATION <= span <= MAX_DURATION


def test_number_lacks_its_unit():
    assert meant_duration("5") == "; write 5s (or 5ms, 5m, 5h)"
    assert "such as" in meant_duration("five")
