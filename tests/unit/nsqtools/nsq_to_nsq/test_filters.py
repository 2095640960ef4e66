"""Which messages nsq_to_nsq passes on, and which fields of them."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtools.nsq_to_nsq.filters import JsonFilter, NotAnObject, TooDeep, encode, number_text, parse_object

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.decimals(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def test_filter_without_flags_passes_bodies_untouched():
    assert JsonFilter().apply(b"\x00 not json") == b"\x00 not json"


@pytest.mark.parametrize("body", [b"notjson", b"[1]", b"1", b"null", b'"a"', b"", b'{"a":NaN}'])
def test_json_without_object_cannot_be_filtered(body):
    with pytest.raises(NotAnObject):
        JsonFilter(require_field="a").apply(body)


def test_json_that_is_nested_too_deep_is_no_reason_to_drop_it():
    with pytest.raises(TooDeep):
        parse_object(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)


@pytest.mark.parametrize("depth", [300, 400, 500, 600, 900, 990])
def test_filter_keeps_json_that_is_nested_too_deep_to_be_written(depth):
    body = b'{"a":' * depth + b"1" + b"}" * depth

    try:
        assert JsonFilter(fields=("a",)).apply(body) == body
    except TooDeep:
        assert depth > 300


@pytest.mark.parametrize(
    ("body", "passes"),
    [
        ('{"f":1}', True),
        ('{"f":1.0}', True),
        ('{"f":1e0}', True),
        ('{"f":"1"}', True),
        ('{"f":"1.0"}', False),
        ('{"f":2}', False),
        ('{"f":true}', False),
        ('{"f":null}', False),
        ('{"f":[1]}', False),
        ('{"F":1}', False),
        ("{}", False),
    ],
)
def test_wanted_value_is_text_or_number(body, passes):
    sent = JsonFilter(require_field="f", require_value="1").apply(body.encode())

    assert sent == (body.encode() if passes else None)


def test_wanted_text_equals_no_number():
    assert JsonFilter(require_field="f", require_value="x").apply(b'{"f":1}') is None


def test_neighbouring_large_numbers_are_different():
    wanted = JsonFilter(require_field="f", require_value="9007199254740993")

    assert wanted.apply(b'{"f":9007199254740993}') is not None
    assert wanted.apply(b'{"f":9007199254740992}') is None


def test_required_field_may_hold_anything():
    assert JsonFilter(require_field="f").apply(b'{"f":null}') == b'{"f":null}'
    assert JsonFilter(require_field="f").apply(b'{"g":null}') is None


def test_listed_fields_are_sent():
    assert (
        JsonFilter(fields=("a", "b", "c")).apply(b'{"a":1,"b":"x","c":2.5,"d":[1]}')
        == b'{"a":1,"b":"x","c":2.5}'
    )


def test_keys_are_sorted_and_blanks_are_gone():
    assert (
        JsonFilter(fields=("b", "a")).apply(b'{"b": {"z": 1, "y": [1, 2]}, "a": 0}')
        == b'{"a":0,"b":{"y":[1,2],"z":1}}'
    )


def test_none_of_fields_makes_empty_object():
    assert JsonFilter(fields=("a",)).apply(b'{"b":1}') == b"{}"


def test_characters_of_html_are_escaped_as_go_does():
    assert JsonFilter(fields=("a",)).apply('{"a":"<ä&>\u2028"}'.encode()) == (
        '{"a":"\\u003cä\\u0026\\u003e\\u2028"}'.encode()
    )


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("12345678901234567890", "12345678901234567890"),
        ("1.0", "1"),
        ("2.50", "2.5"),
        ("1e3", "1000"),
        ("-0", "0"),
        ("-1.5", "-1.5"),
        ("100", "100"),
        ("0.000001", "0.000001"),
        ("1e-7", "1e-7"),
        ("1.5e-10", "1.5e-10"),
        ("1e20", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("1.25e400", "1.25e+400"),
        ("0.1234567890123456789", "0.1234567890123456789"),
    ],
)
def test_numbers_keep_all_their_digits(written, sent):
    assert JsonFilter(fields=("n",)).apply(f'{{"n":{written}}}'.encode()) == f'{{"n":{sent}}}'.encode()


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_number_is_read_back_as_the_same_number(number):
    assert Decimal(number_text(number)) == number


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_written_values_are_read_back(record):
    exact = parse_object(json.dumps(record, default=float).encode())

    assert parse_object(encode(exact).encode()) == exact


@given(st.binary())
def test_body_passes_is_dropped_or_is_no_object(body):
    try:
        sent = JsonFilter(require_field="a", fields=("a",)).apply(body)
    except NotAnObject:
        return

    assert sent is None or sent.startswith(b"{")
