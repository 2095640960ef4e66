"""A pattern translated for ``re`` matches what it matches in RE2, and takes little work."""

import re

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqcore.plain_patterns import translated

# Parts of patterns, joined at random: some of the results are valid, others are not.
parts = st.sampled_from(
    [
        *"ab.^$|()*+?-_]}",
        "{2}",
        "{1,2}",
        "{,2}",
        "{3,1}",
        "{1,}",
        "(?:",
        "[a-c]",
        "[^a]",
        "[-a]",
        "[a-]",
        "[c-a]",
        "[[:alpha:]_]",
        "[[:nothing:]]",
        r"[\d.]",
        r"[\]]",
        "[]",
        "[^]",
        "[a b#]",
        r"\.",
        r"\d",
        r"\W",
        r"\s",
        r"\-",
        r"\_",
        r"\b",
        r"\1",
        "\\",
        "#",
        " ",
        "\n",
        "\xe9",
        "&&",
        "~",
    ]
)
names = st.text("abc.-_1# \n\v\xe9]}&", max_size=8)


def meant_by_re2(pattern):
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options).search


@settings(max_examples=400, deadline=None)
@given(st.lists(parts, max_size=7).map("".join), st.lists(names, min_size=3, max_size=10))
def test_translated_pattern_means_the_same_to_re2(pattern, texts):
    plain = translated(pattern)
    if plain is None:
        return
    search, wanted = re.compile(plain, re.ASCII).search, meant_by_re2(pattern)

    assert [search(text) is None for text in texts] == [wanted(text) is None for text in texts]


@pytest.mark.parametrize(
    "pattern",
    [
        ".*",
        "^orders$",
        r"^orders\.[a-z]+$",
        "^(?:orders|bills)$",
        "^(a.*|b.*|c.*|d.*|e.*)$",
        "a.*b.*c.*",
        "|".join(f"^team{n}_.*$" for n in range(1000)),
        "^[[:upper:]][[:word:]]{0,20}#ephemeral$",
    ],
)
def test_common_patterns_are_translated(pattern):
    assert translated(pattern) is not None


@pytest.mark.parametrize(
    "pattern",
    [
        "a*a*a*a*",
        "(a*a*|b)a*a*",
        "|".join(f"a{n}.*.*" for n in range(100)),
        "|".join(["a.*"] * 5000),
        "(a)(b)",
        "((a))",
        "(a)*",
        "(a",
        "a)",
        "a**",
        "a*?",
        "^*",
        "a{1001}",
        "a{2,1}",
        "\\",
        "[",
        "(?P<n>a)",
    ],
)
def test_slow_or_complex_pattern_is_not_translated(pattern):
    assert translated(pattern) is None
