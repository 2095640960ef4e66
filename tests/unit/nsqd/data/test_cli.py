"""The flags of nsqd-data: each wrong flag gives one sentence and exit code 2."""

import pytest

from nsqd.data.cli import main, parse_arguments
from nsqd.data.dump import ALL


def sentence(capsys, *argv):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    return told.err


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        ([], "COMMAND"),
        (["look"], "'look'"),
        (["verify"], "--data-path"),
        (["verify", "--data-path=/does/not/exist"], "there is no folder /does/not/exist"),
        (["verify", "--data-path=/", "--write"], "--write"),
        (["dump", "--data-path=/", "--start=-1"], "no sequence number"),
        (["dump", "--data-path=/", "--start=abc"], "'abc' is no sequence number"),
        (["dump", "--data-path=/", "--id=12"], "16 hexadecimal digits"),
        (["dump", "--data-path=/", "--from-time=yesterday"], "'yesterday' is no time"),
        (["dump", "--data-path=/", "--chan=x"], "--chan=x"),
    ],
)
def test_bad_flag_gets_one_sentence(capsys, argv, word):
    assert word in sentence(capsys, *argv)


def test_options_take_one_dash_or_two(tmp_path):
    given = parse_arguments(["repair", f"-data-path={tmp_path}", "-topic", "t", "-write"])
    assert (given.data_path, given.topic, given.write) == (tmp_path, "t", True)


def test_times_are_utc_unless_they_say_otherwise(tmp_path):
    times = ["1970-01-01T00:00:01", "1970-01-01T00:00:01Z", "1970-01-01T01:00:01+01:00"]
    for time in times:
        assert parse_arguments(["dump", f"--data-path={tmp_path}", f"--from-time={time}"]).from_time == 10**9


def test_dump_has_all_messages_by_default(tmp_path):
    given = parse_arguments(["dump", f"--data-path={tmp_path}"])
    assert (given.start, given.end, given.from_time, given.to_time) == (0, ALL, 0, ALL)


def test_unknown_topic_is_said(tmp_path, capsys):
    assert main(["summary", f"--data-path={tmp_path}", "--topic=t"]) == 2
    assert capsys.readouterr().err == f"nsqd-data: there is no topic t in {tmp_path}\n"


@pytest.mark.parametrize("command", ["verify", "summary", "dump", "repair"])
def test_empty_data_path_is_well(tmp_path, capsys, command):
    assert main([command, f"--data-path={tmp_path}"]) == 0
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []
