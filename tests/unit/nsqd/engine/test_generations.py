"""Generations, which tell channels of one name apart."""

import pytest

from nsqd.engine.numbering import draw_generation

ONE = (5, "orders", "a", 1000, 1)


@pytest.mark.parametrize(
    "other",
    [
        (6, "orders", "a", 1000, 1),
        (5, "events", "a", 1000, 1),
        (5, "orders", "b", 1000, 1),
        (5, "orders", "a", 1001, 1),
        (5, "orders", "a", 1000, 2),
    ],
    ids=["another node", "another topic", "another channel", "another life", "made again"],
)
def test_another_channel_has_another_number(other):
    assert draw_generation(*ONE) != draw_generation(*other)


def test_generations_have_the_same_number_of_digits():
    drawn = [draw_generation(1, "t", "c", 1, count) for count in range(1000)]

    assert {len(str(number)) for number in drawn} == {19}
    assert max(drawn) < 1 << 63
