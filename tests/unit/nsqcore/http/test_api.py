import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqcore.http.api import ApiError, json_text, parse_query


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("", {}),
        ("topic=a&channel=b", {"topic": "a", "channel": "b"}),
        ("topic=first&topic=second", {"topic": "first"}),
        ("topic=", {"topic": ""}),
        ("topic", {"topic": ""}),
        ("topic=a%23ephemeral", {"topic": "a#ephemeral"}),
        ("topic=a+b%2B", {"topic": "a b+"}),
        ("to%70ic=x=y", {"topic": "x=y"}),
        ("&&a=1&", {"a": "1"}),
    ],
)
def test_arguments_are_decoded_and_the_first_of_name_counts(text, query):
    assert parse_query(text) == query


@pytest.mark.parametrize("text", ["a=%zz", "a=%", "a=%4", "%gg=1", "a=1;b=2"])
def test_malformed_query_is_invalid_request(text):
    with pytest.raises(ApiError) as refused:
        parse_query(text)

    assert (refused.value.status, refused.value.code) == (400, "INVALID_REQUEST")


def test_json_has_no_blanks_and_no_markup_characters():
    assert json_text({"a": ["<b>", "x&y"], "ü": "\u2028"}) == (
        '{"a":["\\u003cb\\u003e","x\\u0026y"],"ü":"\\u2028"}'
    )


@given(st.recursive(st.text() | st.integers() | st.booleans(), st.lists, max_leaves=5))
def test_escaped_json_still_means_the_same(value):
    assert json.loads(json_text(value)) == value
