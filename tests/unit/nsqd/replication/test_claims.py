"""The order of claims, and what owners and replicas do with pending messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.replication.claims import NO_CHANNEL, Claim, count, subtract

A, B = ("a", 1), ("b", 2)
CLAIMS = st.builds(
    Claim, st.integers(0, 3), st.booleans(), st.sampled_from([b"1" * 16, b"2" * 16]), st.integers(0, 2)
)


@given(CLAIMS, CLAIMS, CLAIMS)
def test_order_of_claims_is_total(one, other, third):
    assert (one < other) + (one == other) + (one > other) == 1
    assert not (one < other < third) or one < third


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        (Claim(1, True, b"9", 9), Claim(2, False, b"1", 1)),
        (Claim(1, False, b"9", 9), Claim(1, True, b"1", 0)),
        (Claim(1, False, b"1", 9), Claim(1, False, b"2", 1)),
        (Claim(1, False, b"1", 1), Claim(1, False, b"1", 2)),
    ],
)
def test_epoch_counts_before_origin_before_node_before_copy(lower, higher):
    assert lower < higher


def test_messages_that_another_has_pending_are_left_out():
    pending = {"t": {A: [(0, 10)], B: [(0, 5)]}, "u": {A: [(0, 3)]}}

    assert subtract(pending, [{"t": {A: [(2, 4)], B: [(0, 9)]}}]) == {
        "t": {A: [(0, 2), (4, 10)]},
        "u": {A: [(0, 3)]},
    }


@pytest.mark.parametrize("other", [("a", 2), ("b", 1), NO_CHANNEL])
def test_another_channel_or_generation_covers_nothing(other):
    pending = {"t": {A: [(0, 10)]}}

    assert subtract(pending, [{"t": {other: [(0, 10)]}}]) == pending


def test_message_on_two_channels_counts_twice():
    assert count({"t": {A: [(0, 3)], B: [(0, 3)]}, "u": {A: [(7, 8)]}}) == 7
