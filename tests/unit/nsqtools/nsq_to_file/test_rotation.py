"""When nsq_to_file rotates."""

import pytest

from nsqclient.wire.durations import MINUTE, SECOND
from nsqtools.nsq_to_file.rotation import Rotation


@pytest.mark.parametrize(
    ("rules", "age", "size", "reason"),
    [
        (Rotation(), 10**20, 10**20, None),
        (Rotation(size=100), 0, 100, None),
        (Rotation(size=100), 0, 101, "currently 101 bytes (> 100), rotating..."),
        (Rotation(interval=MINUTE), MINUTE, 0, None),
        (Rotation(interval=MINUTE), 61 * SECOND, 0, "1m1s since last open, rotating..."),
    ],
)
def test_file_is_kept_up_to_its_limits(rules, age, size, reason):
    assert rules.reason("a", "a", age, size) == reason


def test_name_without_rule_is_the_reason():
    assert Rotation().reason("a", "b", 0, 0) == "new filename b, rotating..."
