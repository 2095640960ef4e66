import pytest

from nsqd.engine.owed import Owed
from nsqd.engine.weight import Weight


class Scale:
    """A log whose message n has n bytes, and which records what it is asked for."""

    def __init__(self):
        self.asked = []

    def weigh(self, start, end, count):
        self.asked.append((start, end))
        return sum(seq for seq in range(start, end) if count(seq, seq + 1))


@pytest.fixture
def owed():
    owed = Owed()
    owed.extend(0, 100)
    return owed


def test_nothing_weighs_nothing():
    assert Weight().of(Owed(), Scale()) == 0


def test_what_is_owed_is_weighed_once(owed):
    scale, weight = Scale(), Weight()

    assert weight.of(owed, scale) == weight.of(owed, scale) == sum(range(100))
    assert scale.asked == [(0, 100)]
    assert weight.mean == 49


def test_what_came_since_is_weighed_by_itself(owed):
    scale, weight = Scale(), Weight()
    weight.of(owed, scale)

    owed.extend(100, 102)

    assert weight.of(owed, scale) == sum(range(102))
    assert scale.asked[1:] == [(100, 102)]


def test_what_went_is_taken_for_as_heavy_as_the_rest_until_it_is_much(owed):
    scale, weight = Scale(), Weight()
    weight.of(owed, scale)

    owed.give_up_first(2)
    assert weight.of(owed, scale) == sum(range(100)) * 98 // 100
    owed.give_up_first(20)
    assert weight.of(owed, scale) == sum(range(22, 100))
    assert scale.asked[1:] == [(22, 100)]


def test_the_log_is_weighed_from_the_first_message_that_is_owed_on():
    scale, weight, owed = Scale(), Weight(), Owed()
    owed.begin(1000)
    owed.extend(1000, 1002)
    assert weight.of(owed, scale) == 1000 + 1001

    owed.give_up_first(1)
    assert weight.of(owed, scale) == 1001
    owed.extend(1002, 1005)
    owed.finished.add(1002, 1003)
    owed.take_out({1002})
    assert weight.of(owed, scale) == 1001 + 1003 + 1004

    assert scale.asked == [(1000, 1002), (1001, 1002), (1001, 1005)]


def test_all_is_weighed_when_somebody_says_so(owed):
    scale, weight = Scale(), Weight()
    weight.of(owed, scale)
    owed.give_up_first(1)

    weight.forget()

    assert weight.of(owed, scale) == sum(range(1, 100))
