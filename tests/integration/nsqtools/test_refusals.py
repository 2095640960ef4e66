"""Options that cannot work are refused before anything is done, in the original's words where it has any."""

import importlib
import re
from pathlib import Path

import pytest

from tests.support.tools import GO_TOOLS, original, run_tool

N, L = "-nsqd-tcp-address=127.0.0.1:1", "-lookupd-http-address=127.0.0.1:1"
T, C, POST = "-topic=t", "-channel=c", "-post=http://127.0.0.1:1"
DEST = "-destination-nsqd-tcp-address=127.0.0.1:2"
H = "-nsqd-http-address=127.0.0.1:1"
NO_SOURCE = "--nsqd-tcp-address or --lookupd-http-address required"
BOTH_SOURCES = "use --nsqd-tcp-address or --lookupd-http-address not both"
NO_REV = "missing <REV> in --filename-format when gzip, rotation, or work dir enabled"

SAME = [
    ("nsq_tail", [T], NO_SOURCE),
    ("nsq_tail", [T, N, L], BOTH_SOURCES),
    ("nsq_tail", [N], "--topic required"),
    ("nsq_tail", [N, "-topic=a b"], "invalid topic name"),
    ("nsq_tail", [N, T, "-channel=a b"], "invalid channel name"),
    ("to_nsq", [], "--topic required"),
    ("to_nsq", [T, "-delimiter=ab"], "--delimiter must be a single byte"),
    ("to_nsq", [T, "-delimiter="], "--delimiter must be a single byte"),
    ("to_nsq", [T, r"-delimiter=\n"], "--delimiter must be a single byte"),
    ("to_nsq", [T], "--nsqd-tcp-address required"),
    ("nsq_to_file", [T, "x"], "unknown arguments: [x]"),
    ("nsq_to_file", [T, N, "-gzip", "true", "x"], "unknown arguments: [true x]"),
    ("nsq_to_file", [T, N, "-log-level=loud"], "--log-level is invalid"),
    ("nsq_to_file", [T, N, "-channel="], "--channel is required"),
    (
        "nsq_to_file",
        [T, N, "-http-client-connect-timeout=0s"],
        "--http-client-connect-timeout should be positive",
    ),
    (
        "nsq_to_file",
        [T, N, "-http-client-request-timeout=0s"],
        "--http-client-request-timeout should be positive",
    ),
    ("nsq_to_file", [T], f"{NO_SOURCE}."),
    ("nsq_to_file", [T, N, L], BOTH_SOURCES),
    ("nsq_to_file", [T, N, "-gzip-level=0"], "invalid --gzip-level value (0), should be 1-9"),
    ("nsq_to_file", [N], "--topic or --topic-pattern required"),
    (
        "nsq_to_file",
        [N, "-topic-pattern=x"],
        "--lookupd-http-address must be specified when no --topic specified",
    ),
    ("nsq_to_http", [N, POST], "--topic and --channel are required"),
    ("nsq_to_http", [T, "-channel=", N, POST], "--topic and --channel are required"),
    ("nsq_to_http", [T, N, "-get=http://a/%s", "-content-type=x"], "--content-type only used with --post"),
    ("nsq_to_http", [T, N, POST, "-content-type="], "--content-type requires a value when used"),
    ("nsq_to_http", [T, POST], NO_SOURCE),
    ("nsq_to_http", [T, N, L, POST], BOTH_SOURCES),
    ("nsq_to_http", [T, N], "--get or --post required"),
    ("nsq_to_http", [T, N, POST, "-get=http://a/%s"], "use --get or --post not both"),
    ("nsq_to_http", [T, N, "-get=http://a/"], "invalid GET address - must be a printf string"),
    ("nsq_to_http", [T, N, "-get=http://a/%s%s"], "invalid GET address - must be a printf string"),
    ("nsq_to_http", [T, N, POST, "-sample=1.5"], "ERROR: --sample must be between 0.0 and 1.0"),
    ("nsq_to_nsq", [N, DEST], "--topic and --channel are required"),
    ("nsq_to_nsq", [T, "-channel=", N, DEST], "--topic and --channel are required"),
    ("nsq_to_nsq", ["-topic=a b", N, DEST], "--topic is invalid"),
    ("nsq_to_nsq", [T, "-destination-topic=a b", N, DEST], "--destination-topic is invalid"),
    ("nsq_to_nsq", [T, "-channel=a b", N, DEST], "--channel is invalid"),
    ("nsq_to_nsq", [T, DEST], NO_SOURCE),
    ("nsq_to_nsq", [T, N, L, DEST], BOTH_SOURCES),
    ("nsq_to_nsq", [T, N], "--destination-nsqd-tcp-address required"),
    ("nsq_stat", [T], "--topic and --channel are required"),
    ("nsq_stat", [T, C], "--nsqd-http-address or --lookupd-http-address required"),
]

OURS = [
    ("nsq_stat", [T, C, H, L], "use --nsqd-http-address or --lookupd-http-address not both"),
    ("nsq_stat", [T, C, "-interval=0s"], "--interval should be positive"),
    ("nsq_stat", [T, C, "-count=0"], "--count should be positive"),
    (
        "nsq_stat",
        [T, C, "-http-client-connect-timeout=0s"],
        "--http-client-connect-timeout should be positive",
    ),
    (
        "nsq_stat",
        [T, C, "-http-client-request-timeout=-1s"],
        "--http-client-request-timeout should be positive",
    ),
    ("nsq_to_file", ["-topic=..", N], "--topic .. cannot be part of a file name"),
    ("to_nsq", ["-topic=a b", N], "--topic is invalid"),
    *(
        ("to_nsq", [T, N, f"-header={header}"], "--header ")
        for header in ("x", "x:", ": y", "a:" + "b" * 70_000)
    ),
    ("to_nsq", [T, "-nsqd-tcp-address=host"], "--nsqd-tcp-address error - address 'host' is not host:port"),
    ("nsq_tail", [T, "-nsqd-tcp-address=host"], "--nsqd-tcp-address error - address 'host' is not"),
    ("nsq_tail", [T, "-lookupd-http-address=host"], "--lookupd-http-address error - "),
    (
        "nsq_tail",
        [T, "-nsqd-tcp-address=http://host:4150"],
        "--nsqd-tcp-address error - address 'http://host:4150' is not host:port; is host:4150 meant?",
    ),
    (
        "nsq_tail",
        [T, "-nsqd-tcp-address=4150"],
        "--nsqd-tcp-address error - address '4150' is not host:port; is 127.0.0.1:4150 meant?",
    ),
    (
        "nsq_stat",
        [T, C, "-nsqd-http-address=host"],
        "--nsqd-http-address error - address 'host' is not host:port; is host:4151 meant?",
    ),
    (
        "nsq_stat",
        [T, C, "-lookupd-http-address=http://host"],
        "--lookupd-http-address error - address should not contain scheme; is host:4161 meant?",
    ),
    ("nsq_channel", [], "the first word says what to do: create, delete, empty, pause, "),
    ("nsq_channel", [T, C, H], "the first word says what to do: "),
    ("nsq_channel", ["pause", C, H], "--topic required"),
    ("nsq_channel", ["pause", T, H], "--channel required"),
    ("nsq_channel", ["pause", T, H, "-channel=a b"], "--channel is invalid"),
    ("nsq_channel", ["pause", T, C], "--nsqd-http-address or --lookupd-http-address required"),
    ("nsq_channel", ["seek", T, C, H], "--to required"),
    ("nsq_channel", ["finish", T, H, "-all"], "--channel required"),
    ("nsq_channel", ["finish", T, C, H], "--id, --state, --contains, --json-field or --all required"),
    ("nsq_channel", ["finish", T, C, H, "-from=-1h"], "--id, --state, --contains, --json-field or --all req"),
    ("nsq_channel", ["finish", T, C, H, "-all", "-contains=x"], "--all does not go with --id or a filter"),
    (
        "nsq_channel",
        ["finish", T, C, H, "-id=1", "-state=waiting"],
        "--id does not go with --from or a filter",
    ),
    ("nsq_channel", ["finish", T, C, H, "-id=12"], "--id 12 is no id: 16 digits of 0-9 and a-f"),
    ("nsq_channel", ["finish", T, C, H, "-state=lost"], "--state lost is none of waiting, deferred, in_flig"),
    ("nsq_channel", ["requeue", T, C, H, "-all", "-defer=-1s"], "--defer should not be negative"),
    ("nsq_channel", ["send-back", T, H], "--id, --contains, --json-field or --all required"),
    ("nsq_peek", [H], "--topic required"),
    ("nsq_peek", ["-topic=a b", H], "--topic is invalid"),
    ("nsq_peek", [T, "-channel=a b", H], "--channel is invalid"),
    ("nsq_peek", [T], "--nsqd-http-address or --lookupd-http-address required"),
    ("nsq_peek", [T, H, L], "use --nsqd-http-address or --lookupd-http-address not both"),
    (
        "nsq_peek",
        [T, "-nsqd-http-address=http://host"],
        "--nsqd-http-address error - address should not contain scheme; is host:4151 meant?",
    ),
    ("nsq_peek", [T, "-lookupd-http-address=host"], "--lookupd-http-address error - address 'host' is not"),
    ("nsq_peek", [T, H, "-http-client-connect-timeout=0s"], "--http-client-connect-timeout should be posi"),
    ("nsq_peek", [T, H, "-n=-1"], "--n should not be negative"),
    ("nsq_peek", [T, H, "-output=xml"], "--output xml is none of text, json, body"),
    ("nsq_peek", [T, H, "-interval=0s"], "--interval should be positive"),
    (
        "nsq_peek",
        [T, C, H, "-state=lost"],
        "--state lost is none of waiting, deferred, in_flight, dead_lettering",
    ),
    ("nsq_peek", [T, H, "-state=waiting"], "--state needs --channel: only there do messages have one"),
    ("nsq_peek", [T, C, H, "-state=deferred", "-reverse"], "--reverse does not go with --state=deferred"),
    ("nsq_peek", [T, H, "-follow", "-reverse"], "--follow does not go with --reverse or --state"),
    ("nsq_peek", [T, C, H, "-follow", "-state=waiting"], "--follow does not go with --reverse or --state"),
    ("nsq_to_nsq", [T, N, "-destination-nsqd-tcp-address=host"], "--destination-nsqd-tcp-address error - "),
    ("nsq_to_file", [T, N, "-filename-format=x", "-gzip"], NO_REV),
    ("nsq_to_file", [T, N, "-filename-format=x", "-rotate-size=1"], NO_REV),
    ("nsq_to_file", [T, N, "-filename-format=x", "-rotate-interval=1s"], NO_REV),
    ("nsq_to_file", [T, N, "-filename-format=x", "-work-dir=/x"], NO_REV),
    ("nsq_to_file", ["-topic=a b", N], "--topic a b is no valid topic name"),
    ("nsq_to_file", [T, "-channel=a b", N], "--channel a b is no valid channel name"),
    ("nsq_to_file", [T, N, "-topic-pattern=("], "--topic-pattern is no regular expression: "),
    ("nsq_to_file", [T, N, "-topic-pattern=(?=a)"], "--topic-pattern is no regular expression: "),
    ("nsq_to_file", [T, N, "-sync-interval=0s"], "--sync-interval should be positive"),
    ("nsq_to_file", [T, N, "-topic-refresh=0s"], "--topic-refresh should be positive"),
    ("nsq_to_file", [T, N, "-rotate-size=-1"], "--rotate-size should not be negative"),
    ("nsq_to_file", [T, N, "-consumer-opt=sample_rate,100"], "sample_rate 100 is out of range"),
    ("nsq_to_http", [T, N, POST, "-header=x"], "--header value format should be 'Key: Value'"),
    (
        "nsq_to_http",
        [T, N, POST, "-header=My Header: x"],
        "--header 'My Header' cannot be sent: a ",
    ),
    ("nsq_to_http", [T, N, POST, "-header=X: a\nb"], "--header 'X' cannot be sent: a name is one word, a"),
    ("nsq_to_http", [T, N, POST, "-header=content-length: 1"], "--header content-length cannot be given: "),
    ("nsq_to_http", [T, N, POST, "-content-type=a\nb"], "--content-type is not one line"),
    ("nsq_to_http", [T, N, "-post=http://a:70000/"], "http://a:70000/ is not an http:// or https:// address"),
    ("nsq_to_http", [T, N, "-get=http://a:b/%s"], "http://a:b/%s is not an http:// or https:// address"),
    ("nsq_to_http", [T, N, POST, "-mode=most"], "--mode most is none of hostpool, round-robin, "),
    ("nsq_to_http", [T, N, "-post=a:1/x"], "a:1/x is not an http:// or https:// address"),
    ("nsq_to_http", ["-topic=a b", N, POST], "invalid topic name"),
    ("nsq_to_http", [T, N, POST, "-n=0"], "--n should be positive"),
    ("nsq_to_http", [T, N, POST, "-max-in-flight=0"], "--max-in-flight should be positive"),
    ("nsq_to_nsq", [T, N, DEST, "-mode=most"], "--mode most is none of hostpool, round-robin, "),
    ("nsq_to_nsq", [T, N, DEST, "-require-json-value=x"], "--require-json-value needs --require-json-field"),
    (
        "nsq_to_nsq",
        [T, N, "-destination-nsqd-tcp-address=127.0.0.1:1"],
        "127.0.0.1:1 is source and destination of the same topic",
    ),
    ("nsq_to_nsq", [T, N, DEST, "-producer-opt=sample_rate,100"], "sample_rate 100 is out of range"),
    ("nsq_tail", [T, N, "-consumer-opt=heartbeat_interval,2m"], "heartbeat_interval must not be above"),
]

ORIGINALS = ["nsq_stat", "nsq_tail", "nsq_to_file", "nsq_to_http", "nsq_to_nsq", "to_nsq"]
TOOLS = ["nsq_channel", "nsq_peek", *ORIGINALS]


def refused(tool: str, argv: list[str], capsys) -> tuple[int, str]:
    """The exit code and the error output without its time."""
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"nsqtools.{tool}.__main__").main(argv)
    return ended.value.code, untimed(capsys.readouterr().err)


def untimed(text: str) -> str:
    return re.sub(r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d ", "", text)


@pytest.mark.parametrize(("tool", "argv", "sentence"), SAME)
def test_refusals_have_the_words_of_the_original(tool, argv, sentence, capsys):
    assert refused(tool, argv, capsys) == (1, f"{sentence}\n")


@pytest.mark.parametrize(("tool", "argv", "sentence"), OURS)
def test_invalid_options_are_refused_with_sentence(tool, argv, sentence, capsys):
    code, said = refused(tool, argv, capsys)

    assert code == 1
    assert said.startswith(sentence)
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied", "/x"), RuntimeError("Symlink loop from '/x'")]
)
def test_folder_that_cannot_be_looked_into_is_refused_with_sentence(error, capsys, monkeypatch):
    def resolve(path):
        raise error

    monkeypatch.setattr(Path, "resolve", resolve)

    assert refused("nsq_to_file", [T, N, "-output-dir=/x"], capsys) == (
        1,
        f"--output-dir cannot be used: {error}\n",
    )


@pytest.mark.parametrize("option", ["bogus", "max_attempts,x", "dial_timeout,5"])
def test_invalid_client_option_is_refused(option, capsys):
    code, said = refused("nsq_tail", ["-consumer-opt=" + option], capsys)

    assert code == 2
    assert said.startswith(f'invalid value "{option}" for flag -consumer-opt: ')
    assert said.endswith(" nsq_tail -help lists all flags\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize("tool", TOOLS)
def test_unknown_flag_is_refused(tool, capsys):
    code, said = refused(tool, ["-bogus"], capsys)

    assert code == 2
    assert said == f"flag provided but not defined: -bogus; {tool} -help lists all flags\n"


@pytest.mark.parametrize("tool", TOOLS)
def test_stray_word_is_not_passed_over(tool, capsys):
    code, said = refused(tool, ["-topic=t", "stray", "-channel=c"], capsys)

    assert code == (1 if tool == "nsq_to_file" else 2)
    assert "stray" in said


def test_original_says_the_same():
    if original("nsq_tail") is None:
        pytest.skip(f"the original's tools are neither in ${GO_TOOLS} nor on PATH")
    different = []
    for tool, argv, sentence in SAME:
        ended = run_tool([original(tool)], *argv)
        # Some tools log about a consumer before they check the next option.
        said = untimed(ended.stderr.decode().splitlines()[-1])
        if (ended.returncode, said) != (1, sentence):
            different.append((tool, argv, ended.returncode, said))

    assert different == []


@pytest.mark.parametrize("tool", ORIGINALS)
def test_flags_of_original_are_known_with_their_defaults(tool, capsys):
    peer = original(tool)
    if peer is None:
        pytest.skip(f"the original's {tool} is neither in ${GO_TOOLS} nor on PATH")
    theirs = flags_in(run_tool([peer], "-h").stderr.decode())
    with pytest.raises(SystemExit):
        importlib.import_module(f"nsqtools.{tool}.__main__").main(["-h"])
    ours = flags_in(capsys.readouterr().err)

    assert {name: ours.get(name) for name in theirs} == theirs
    assert ours.keys() - theirs.keys() <= {"version", "header", "headers"}


def flags_in(usage: str) -> dict[str, str]:
    """The flags of a usage text with their defaults."""
    flags: dict[str, str] = {}
    name = ""
    for line in usage.splitlines():
        if found := re.match(r"  -(\S+)", line):
            name = found[1]
            flags[name] = ""
        if found := re.search(r"\(default (.*)\)$", line):
            flags[name] = found[1]
    return flags
