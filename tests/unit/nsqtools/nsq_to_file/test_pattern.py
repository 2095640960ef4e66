"""Which topics a pattern means."""

import pytest

from nsqtools.nsq_to_file.pattern import occurs_in


@pytest.mark.parametrize(
    ("pattern", "topic"),
    [("", "any"), ("b", "abc"), ("^logs\\.", "logs.a"), ("^[[:alpha:]]+$", "abc"), ("(?i)LOGS", "logs")],
)
def test_a_pattern_is_looked_for_anywhere_in_the_topic(pattern, topic):
    assert occurs_in(pattern)(topic)


@pytest.mark.parametrize(("pattern", "topic"), [("^b", "abc"), ("^[[:alpha:]]+$", "abc1"), ("LOGS", "logs")])
def test_other_topics_do_not_match(pattern, topic):
    assert not occurs_in(pattern)(topic)


@pytest.mark.parametrize("pattern", ["(", "*", "(?=a)", "[[:letters:]]"])
def test_what_is_no_pattern_is_refused_without_a_word_on_stderr(pattern, capfd):
    with pytest.raises(ValueError, match=r"\w"):
        occurs_in(pattern)

    assert capfd.readouterr().err == ""
