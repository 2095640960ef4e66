"""What a power cut leaves of a copy."""

import random

import pytest

from nsqd.replication.frames import (
    Rename,
)
from tests.support.copied import (
    Shelf,
    part,
)


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_leaves_one_checkpoint_at_least(shelf, seed):
    shelf.begin()
    for number in range(4):
        slot = f"checkpoint.{number % 2}"
        shelf.say(part(f"{slot}.tmp", 0, b"c" * 5000), Rename(1, f"{slot}.tmp", slot))

    after = Shelf(shelf.disk.after_power_cut(random.Random(seed)))

    whole = [one for one in ("checkpoint.0", "checkpoint.1") if one in after.names()]
    assert b"c" * 5000 in [after.content(one) for one in whole]
