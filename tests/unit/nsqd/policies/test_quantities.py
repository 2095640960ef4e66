import pytest

from nsqclient.wire.durations import HOUR, SECOND
from nsqd.policies.quantities import count, duration_ns, size_bytes, watermark


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("7d", 168 * HOUR),
        ("2w", 336 * HOUR),
        ("1w2d3h", (168 + 48 + 3) * HOUR),
        (" 500ms ", SECOND // 2),
    ],
)
def test_duration_is_read_as_people_write_it(text, expected):
    assert duration_ns(text) == expected


@pytest.mark.parametrize("value", ["", "7", "d", "0s", "0d", "-1s", "7x", "1d7", 7, 7.5, None, "9999999w"])
def test_bad_duration_is_refused(value):
    with pytest.raises(ValueError, match=r"duration|longer"):
        duration_ns(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1),
        (1_000_000, 1_000_000),
        ("1000", 1000),
        ("500MB", 500_000_000),
        ("10GiB", 10 << 30),
        ("1.5 KiB", 1536),
        ("2k", 2000),
        ("7b", 7),
        ("1TB", 10**12),
    ],
)
def test_size_is_read_as_people_write_it(value, expected):
    assert size_bytes(value) == expected


@pytest.mark.parametrize("value", ["", "GB", "ten", "-1", "1XB", "1i", 0, -5, True, None, "9999999TB", "0MB"])
def test_bad_size_is_refused(value):
    with pytest.raises(ValueError, match=r"size|bytes"):
        size_bytes(value)


@pytest.mark.parametrize("value", [0, -1, 1.0, "3", True, None, 1 << 62])
def test_bad_count_is_refused(value):
    with pytest.raises(ValueError, match="whole number"):
        count(value)


def test_count_is_itself():
    assert count(3) == 3


@pytest.mark.parametrize(
    ("text", "expected"), [("", (0, 0.0)), ("10GB", (10**10, 0.0)), ("5%", (0, 0.05)), ("0.5 %", (0, 0.005))]
)
def test_watermark_is_bytes_or_part(text, expected):
    assert watermark(text) == expected


@pytest.mark.parametrize("text", ["0%", "100%", "5 apples", "-1", "%", "1e9%"])
def test_bad_watermark_is_refused(text):
    with pytest.raises(ValueError, match=r"must be|is no size"):
        watermark(text)
