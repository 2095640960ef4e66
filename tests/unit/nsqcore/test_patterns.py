"""Which names a pattern matches, with google-re2 and without."""

import pytest

from nsqcore import patterns
from nsqcore.patterns import NEEDS_RE2, PatternError, search_for


@pytest.fixture(params=["re2", "plain"])
def engine(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(patterns, "re2", None)  # as on Alpine
    return request.param


@pytest.mark.parametrize(
    ("pattern", "topic"),
    [
        ("", "any"),
        (".*", ""),
        ("b", "abc"),
        (r"^logs\.", "logs.a"),
        ("^[[:alpha:]]+$", "abc"),
        ("^(orders|bills)$", "bills"),
        (r"^\w+\.[a-z-]{2,}$|^x#ephemeral$", "x#ephemeral"),
    ],
)
def test_pattern_is_looked_for_anywhere_in_name(engine, pattern, topic):
    assert search_for(pattern)(topic)


@pytest.mark.parametrize(
    ("pattern", "topic"),
    [
        ("^b", "abc"),
        ("^[[:alpha:]]+$", "abc1"),
        ("LOGS", "logs"),
        ("^a$", "a\n"),
        ("^.$", "\n"),
        (r"^\s$", "\v"),
    ],
)
def test_other_names_do_not_match(engine, pattern, topic):
    assert not search_for(pattern)(topic)


@pytest.mark.parametrize("pattern", ["(", "*", "(?=a)", "[[:letters:]]", "\ud800"])
def test_invalid_pattern_is_refused_without_output_on_stderr(engine, pattern, capfd):
    with pytest.raises(PatternError, match=r"\w"):
        search_for(pattern)

    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("pattern", ["(?i)LOGS", r"^\pL+$", "(a|b)+", r"\Qa.b\E", "(a|b)(c|d)", "a*b*c*d*e*"])
def test_pattern_that_needs_re2_names_the_extra(pattern, monkeypatch):
    assert search_for(pattern)("") in {True, False}
    monkeypatch.setattr(patterns, "re2", None)
    with pytest.raises(PatternError, match=NEEDS_RE2.replace("[", r"\[")):
        search_for(pattern)
