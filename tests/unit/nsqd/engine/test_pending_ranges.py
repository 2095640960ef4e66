"""Messages that wait are taken from the front, and taken messages are returned as ranges."""

import pytest

from nsqd.engine.pending_ranges import PendingList, PendingRange, ranges_waiting, together


def test_messages_that_follow_one_another_are_a_span_and_others_are_not():
    assert repr(together([5, 6, 7], redelivered=True)) == "<PendingRange 5..8 redelivered>"
    assert repr(together([5, 7], redelivered=False)) == "<PendingList 2>"


@pytest.mark.parametrize(
    ("waiting", "below", "left"),
    [(PendingRange(5, 9, False), [(5, 7)], [(7, 9)]), (PendingList([5, 6, 9], False), [(5, 7)], [(9, 10)])],
)
def test_what_lies_below_a_message_is_taken_out(waiting, below, left):
    assert waiting.cut_below(7) == below
    assert waiting.cut_below(7) == []
    assert ranges_waiting([waiting]) == left


@pytest.mark.parametrize("waiting", [PendingRange(5, 8, True), PendingList([5, 6, 7], True)])
def test_so_many_are_taken_out_and_no_more_than_there_are(waiting):
    assert (waiting.cut(1), len(waiting)) == ([(5, 6)], 2)
    assert (waiting.cut(9), len(waiting)) == ([(6, 8)], 0)


def test_what_waits_is_told_in_the_order_in_which_it_is_delivered():
    assert ranges_waiting([PendingRange(9, 12, False), PendingList([1, 2, 5], True)]) == [
        (9, 12),
        (1, 3),
        (5, 6),
    ]
