import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.log.search import All, BadFilter, Contains, parse_json_filter


def test_body_contains_bytes_or_does_not():
    assert Contains(b"lo w").matches(b"hello world")
    assert not Contains(b"low").matches(b"hello world")


@pytest.mark.parametrize(
    ("text", "body", "matches"),
    [
        ("n=5", b'{"n": 5}', True),
        ("n=5", b'{"n": 5.0}', True),
        ("n=5", b'{"n": "5"}', True),
        ("n=5", b'{"n": 6}', False),
        ("n=1", b'{"n": true}', False),
        ("n=true", b'{"n": true}', True),
        ("n=true", b'{"n": 1}', False),
        ("n=null", b'{"n": null}', True),
        ("n", b'{"n": null}', False),
        ("n", b'{"n": 0}', True),
        ("n=", b'{"n": ""}', True),
        ("user.id=x", b'{"user": {"id": "x"}}', True),
        ("user.id=x", b'{"user": "x"}', False),
        ("a.1=b", b'{"a": ["a", "b"]}', True),
        ("a.7=b", b'{"a": ["a", "b"]}', False),
        ("0=b", b'["b"]', True),
        ("0=b", b'{"0": "b"}', True),
        ("n=a=b", b'{"n": "a=b"}', True),
        ('n={"x":1}', b'{"n": {"x": 1}}', True),
        ("n=5", b"no json", False),
        ("n=5", b'{"n": "\xff"}', False),
        ("n=5", b"[" * 100_000, False),
    ],
)
def test_value_in_json_is_found_at_its_path(text, body, matches):
    assert parse_json_filter(text).matches(body) is matches


@pytest.mark.parametrize("text", ["", "=5", "a..b=1", ".a", "a."])
def test_invalid_path_is_refused_with_sentence(text):
    with pytest.raises(BadFilter, match="no path"):
        parse_json_filter(text)


def test_filters_must_all_match():
    both = All(Contains(b"x"), parse_json_filter("n=5"))

    assert both.matches(b'{"n": 5, "t": "x"}')
    assert not both.matches(b'{"n": 5}')
    assert not both.matches(b'{"n": 6, "t": "x"}')


@given(
    st.text(min_size=1, max_size=4).filter(lambda name: "." not in name and "=" not in name),
    st.one_of(st.integers(), st.text(max_size=5), st.booleans()),
    st.booleans(),
    st.binary(max_size=20),
)
def test_page_check_passes_over_no_match(name, value, escaped, around):
    """JSON may be written with escapes or without."""
    wanted = parse_json_filter(f"{name}={json.dumps(value)}")
    body = json.dumps({name: value}, ensure_ascii=escaped).encode("utf-8", "surrogatepass")

    if wanted.matches(body):
        assert wanted.may_be_in(around + body + around)
