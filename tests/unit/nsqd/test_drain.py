"""The command line of the drain."""

import pytest

from nsqd.drain import DrainOptions, parse_arguments


def test_without_flags_the_node_of_this_machine_is_drained_within_five_minutes():
    assert parse_arguments([]) == DrainOptions("127.0.0.1:4151", 300.0, 0.0, 60.0)


def test_durations_are_written_as_for_nsqd():
    options = parse_arguments(["--timeout=1m30s", "--at-least=500ms", "--poll-interval=0"])

    assert (options.timeout_s, options.at_least_s, options.poll_interval_s) == (90.0, 0.5, 0.0)


def test_a_bad_duration_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        parse_arguments(["--timeout=soon"])

    assert ended.value.code == 2
    assert "--timeout" in capsys.readouterr().err
