import pytest

from nsqd.engine.backlog import Backlog, Weight


class Scale:
    """A log whose message n has n bytes, and which records its requests."""

    def __init__(self):
        self.asked = []

    def weigh(self, start, end, count):
        self.asked.append((start, end))
        return sum(seq for seq in range(start, end) if count(seq, seq + 1))


@pytest.fixture
def pending():
    pending = Backlog()
    pending.extend(0, 100)
    return pending


def test_empty_backlog_weighs_nothing():
    assert Weight().of(Backlog(), Scale()) == 0


def test_backlog_is_weighed_once(pending):
    scale, weight = Scale(), Weight()

    assert weight.of(pending, scale) == weight.of(pending, scale) == sum(range(100))
    assert scale.asked == [(0, 100)]
    assert weight.mean == 49


def test_new_messages_are_weighed_by_themselves(pending):
    scale, weight = Scale(), Weight()
    weight.of(pending, scale)

    pending.extend(100, 102)

    assert weight.of(pending, scale) == sum(range(102))
    assert scale.asked[1:] == [(100, 102)]


def test_removed_messages_count_as_average_until_many(pending):
    scale, weight = Scale(), Weight()
    weight.of(pending, scale)

    pending.remove([(0, 2)])
    assert weight.of(pending, scale) == sum(range(100)) * 98 // 100
    pending.remove([(2, 22)])
    assert weight.of(pending, scale) == sum(range(22, 100))
    assert scale.asked[1:] == [(22, 100)]


def test_log_is_weighed_from_the_first_message_that_is_owed_on():
    scale, weight, pending = Scale(), Weight(), Backlog()
    pending.reset(1000)
    pending.extend(1000, 1002)
    assert weight.of(pending, scale) == 1000 + 1001

    pending.remove([(1000, 1001)])
    assert weight.of(pending, scale) == 1001
    pending.extend(1002, 1005)
    pending.remove([(1002, 1003)])
    assert weight.of(pending, scale) == 1001 + 1003 + 1004

    assert scale.asked == [(1000, 1002), (1001, 1002), (1001, 1005)]


def test_backlog_is_weighed_again_on_request(pending):
    scale, weight = Scale(), Weight()
    weight.of(pending, scale)
    pending.remove([(0, 1)])

    weight.forget()

    assert weight.of(pending, scale) == sum(range(1, 100))
