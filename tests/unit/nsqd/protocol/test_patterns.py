"""Patterns match what they match in the original, and no name makes a pattern slow."""

import sys

import pytest

from nsqd.protocol.patterns import MAX_LENGTH, BadPattern, Pattern


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("o", "foo"),
        ("", "anything"),
        (".*", ""),
        (r"^orders\.[a-z]+$", "orders.new"),
        (r"^foo\z", "foo"),
        ("^[[:alpha:]_]+[[:digit:]]$", "ab_c1"),
        ("(?i)FOO", "foo"),
        ("f(?i)OO", "foo"),
        ("(?i:F)oo", "foo"),
        ("(?U)^a+", "a"),
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
        (r"^\Qa.b\E$", "a.b"),
        (r"^\pL+$", "abc"),
        (r"^\Q\C\E$", r"\C"),
        (r"^\\C$", r"\C"),
    ],
)
def test_pattern_of_re2_finds_what_it_should(pattern, text):
    assert Pattern(pattern).occurs_in(text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^orders$", "orders2"),
        ("^orders$", "orders\n"),
        ("[[:upper:]]", "lower"),
        ("^a{,3}$", "aaa"),
        (r"^foo\z", "foo "),
        (r"^\Qa.b\E$", "acb"),
        ("^f(?i)oo$", "FOO"),
    ],
)
def test_pattern_of_re2_finds_nothing_else(pattern, text):
    assert not Pattern(pattern).occurs_in(text)


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
        "a{1001}",
        r"\Z",
        r"\C",
        r"a\Qb\E\C",
        "[[:nothing:]]",
        "(",
        "[a",
        "*",
        "a)",
        "[z-a]",
        "\ud800",
        "a" * (MAX_LENGTH + 1),
    ],
)
def test_pattern_unknown_to_original_is_refused(pattern):
    with pytest.raises(BadPattern):
        Pattern(pattern)


def test_search_takes_no_more_steps_than_text_is_long():
    # With a backtracking search each character would double the time: this search would take years.
    pattern = Pattern("^([a-z]+[.]?)+$")

    assert not pattern.occurs_in("a" * 64 + "-")


def test_pattern_error_does_not_quote_pattern(capfd):
    with pytest.raises(BadPattern, match=r"^missing \)$"):
        Pattern("quoted nowhere (")
    sys.stderr.flush()

    assert capfd.readouterr() == ("", "")
