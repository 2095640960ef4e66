import io
import re

import pytest

from nsqcore.process.logs import Log, LogLevel, one_line, parse_log_level, without_passwords


def written(level, write):
    stream = io.StringIO()
    write(Log("[nsqd] ", level, stream))
    return stream.getvalue()


def test_line_has_prefix_local_time_with_microseconds_and_level():
    line = written(LogLevel.INFO, lambda log: log.info("TCP: listening on %s", "127.0.0.1:4150"))

    assert re.fullmatch(
        r"\[nsqd\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} INFO: TCP: listening on 127\.0\.0\.1:4150\n", line
    )


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (LogLevel.DEBUG, ["DEBUG", "INFO", "WARNING", "ERROR", "FATAL"]),
        (LogLevel.INFO, ["INFO", "WARNING", "ERROR", "FATAL"]),
        (LogLevel.WARN, ["WARNING", "ERROR", "FATAL"]),
        (LogLevel.ERROR, ["ERROR", "FATAL"]),
        (LogLevel.FATAL, ["FATAL"]),
    ],
)
def test_line_is_written_when_its_level_is_high_enough(level, words):
    def write(log):
        log.debug("x")
        log.info("x")
        log.warning("x")
        log.error("x")
        log.fatal("x")

    assert re.findall(r"([A-Z]+): x", written(level, write)) == words


def test_level_can_be_changed_while_running():
    log = Log("", LogLevel.INFO, io.StringIO())
    assert not log.debug_enabled

    log.set_level(LogLevel.DEBUG)

    assert log.debug_enabled


def test_error_can_bring_its_traceback():
    try:
        raise ValueError("broken")
    except ValueError as error:
        caught = error

    text = written(LogLevel.INFO, lambda log: log.error("it failed", error=caught))

    assert "ERROR: it failed\nTraceback " in text
    assert text.endswith("ValueError: broken\n")


def test_two_logs_in_one_process_share_nothing():
    one, other = io.StringIO(), io.StringIO()
    first, second = Log("[a] ", LogLevel.INFO, one), Log("[a] ", LogLevel.FATAL, other)

    first.info("hello")
    second.info("hello")

    assert one.getvalue().endswith("hello\n")
    assert not other.getvalue()


@pytest.mark.parametrize("word", ["debug", "INFO", "Warn", "eRRoR", "fatal"])
def test_level_word_may_have_any_letter_case(word):
    assert parse_log_level(word).name == word.upper()


@pytest.mark.parametrize("word", ["warning", "", "info ", "2"])
def test_unknown_words_are_no_level(word):
    with pytest.raises(ValueError, match=r"invalid log level '.*' \(debug, info, warn, error, fatal\)"):
        parse_log_level(word)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines", "two\\nlines"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\u2028b\x85c", "a\\u2028b\\x85c"),
        ("tab\tstays", "tab\tstays"),
        ("ümlaut", "ümlaut"),
    ],
)
def test_control_characters_are_escaped(text, shown):
    assert one_line(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("POST http://user:secret@host:80/x failed", "POST http://host:80/x failed"),
        ("https://token@host", "https://host"),
        ("mail to a@b and http://host/", "mail to a@b and http://host/"),
        ("two http://a:b@c http://d:e@f", "two http://c http://f"),
    ],
)
def test_users_and_passwords_of_addresses_are_left_out(text, shown):
    assert without_passwords(text) == shown


def test_log_lines_name_actions_without_passwords():
    stream = io.StringIO()
    log = Log("[x] ", stream=stream)

    log.info("%s", "first http://u:p@h/\n[x] 2026/01/01 INFO: forged")

    assert stream.getvalue().count("\n") == 1
    assert "u:p" not in stream.getvalue()
