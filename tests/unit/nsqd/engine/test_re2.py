"""Patterns written for RE2 mean the same here, or are refused."""

import re

import pytest

from nsqd.engine.re2 import MAX_LENGTH, BadPattern, translate


def found(pattern, text):
    return re.compile(translate(pattern), re.ASCII).search(text) is not None


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("o", "foo"),
        ("", "anything"),
        (".*", ""),
        (r"^orders\.[a-z]+$", "orders.new"),
        (r"^foo\z", "foo"),
        ("^[[:alpha:]_]+[[:digit:]]$", "ab_c1"),
        ("^(?i)X"[1:], "x"),
        ("(?i)FOO", "foo"),
        ("(?i:F)oo", "foo"),
        ("^(?:a|b)+?$", "abba"),
        ("^(?P<name>a)$", "a"),
        ("^(?<name>a)$", "a"),
        ("^a{2,3}$", "aaa"),
        ("^a{,3}$", "a{,3}"),
        ("^[]x]+$", "]x"),
        ("^[a[&&~~||]+$", "a[&~|"),
        ("^[^-a]$", "b"),
        (r"^[\w.-]+#ephemeral$", "t.x-y#ephemeral"),
        (r"^\x41$", "A"),
    ],
)
def test_a_pattern_of_re2_finds_what_it_should(pattern, text):
    assert found(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("^orders$", "orders2"), ("[[:upper:]]", "lower"), ("^a{,3}$", "aaa"), (r"^foo\z", "foo ")],
)
def test_a_pattern_of_re2_finds_nothing_else(pattern, text):
    assert not found(pattern, text)


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?>a)",
        "(?#note)",
        r"(a)\1",
        "(?P<x>a)(?P=x)",
        "a*+",
        "a**",
        "a{2}+",
        "a???",
        r"\Qa\E",
        r"\pL",
        r"\Z",
        "[[:nothing:]]",
        "a(?i)b",
        "(?U)a",
        "a" * (MAX_LENGTH + 1),
    ],
)
def test_what_re2_or_this_nsqd_does_not_have_is_refused(pattern):
    with pytest.raises(BadPattern):
        translate(pattern)


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "a)", "[z-a]"])
def test_what_is_no_pattern_at_all_does_not_compile(pattern):
    with pytest.raises(re.error):
        re.compile(translate(pattern))
