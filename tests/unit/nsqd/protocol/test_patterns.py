"""Patterns match what they match in the original, and no name makes a pattern slow."""

import sys

import pytest

from nsqd.protocol.patterns import MAX_LENGTH, BadPattern, Pattern


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("", "anything"),
        (r"^foo\z", "foo"),
        ("^[[:alpha:]_]+[[:digit:]]$", "ab_c1"),
        ("f(?i)OO", "foo"),
        ("(?U)^a+", "a"),
        ("^(?<name>a)$", "a"),
        ("^a{,3}$", "a{,3}"),
        ("^[a[&&~~||]+$", "a[&~|"),
        (r"^[\w.-]+#ephemeral$", "t.x-y#ephemeral"),
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
        ("^orders$", "orders\n"),
        ("^a{,3}$", "aaa"),
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
        r"(a)\1",
        "a*+",
        "a{1001}",
        r"\Z",
        r"\C",
        r"a\Qb\E\C",
        "[[:nothing:]]",
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
