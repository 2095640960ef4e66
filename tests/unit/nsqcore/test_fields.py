"""JSON fields as Go reads them."""

import pytest

from nsqcore import fields

READERS = [
    (fields.text, "", "a", 1),
    (fields.integer, 0, -7, 1.5),
    (fields.number, 0, 7, "7"),
    (fields.flag, False, True, 0),
    (fields.objects, [], [{"a": 1}], ["a"]),
    (fields.names, (), ["a"], ["a", 1]),
]


@pytest.mark.parametrize(("read", "zero", "good", "_bad"), READERS)
def test_absence_and_null_are_zero_value(read, zero, good, _bad):
    assert read({}, "k") == read({"k": None}, "k") == zero
    assert read({"k": good}, "k") in (good, tuple(good) if isinstance(good, list) else good)


@pytest.mark.parametrize(("read", "_zero", "_good", "bad"), READERS)
def test_type_mismatch_is_refused_by_name(read, _zero, _good, bad):
    with pytest.raises(TypeError, match="k is not a"):
        read({"k": bad}, "k")


@pytest.mark.parametrize("value", [True, 2**63, -(2**63) - 1])
def test_integer_is_one_of_64_bits(value):
    with pytest.raises(TypeError, match="k is not an integer"):
        fields.integer({"k": value}, "k")


def test_half_a_surrogate_pair_becomes_character_that_can_be_written():
    assert fields.text({"k": "a\ud800b"}, "k") == "a\ufffdb"
    assert fields.text({"k": "grün"}, "k") == "grün"


def test_number_may_have_fraction():
    assert fields.number({"k": 7.9}, "k") == 7
