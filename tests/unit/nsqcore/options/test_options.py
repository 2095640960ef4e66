import io
from dataclasses import dataclass

import pytest

from nsqclient.wire.durations import SECOND, Duration
from nsqcore.options.kinds import BOOL, DIAL, DIAL_LIST, DURATION, FLOAT_LIST, INT, STR_LIST
from nsqcore.options.options import NO_KEY, DaemonOptions, config_value, option, parse, specs, usage
from nsqcore.process.logs import LogLevel


@dataclass(frozen=True, kw_only=True)
class SampleOptions(DaemonOptions):
    node_id: int = option(7, key="id", kind=INT, help="unique part of message ids")
    tcp_address: str = option("0.0.0.0:4150", help="where to listen")
    msg_timeout: Duration = option(60 * SECOND, kind=DURATION, help="time to answer")
    sync_every: int = option(
        2500, kind=INT, check=lambda value: "--sync-every must be positive" if value < 1 else None
    )
    deflate: bool = option(True, kind=BOOL, help="allow compression")
    snappy: bool = option(False, kind=BOOL)
    lookupds: tuple[str, ...] = option(
        (), flag="lookupd-tcp-address", key="nsqlookupd_tcp_addresses", kind=STR_LIST
    )
    percentiles: tuple[float, ...] = option((), flag="e2e-percentile", kind=FLOAT_LIST)
    hostname: str = option(factory=lambda: "this-machine")
    worker_id: bool = option(False, key=NO_KEY, kind=BOOL)

    def problem(self):
        return "--deflate and --snappy exclude each other" if self.deflate and self.snappy else None


def read(*argv):
    return parse(SampleOptions, "nsqd", argv, io.StringIO(), io.StringIO())


def refuse(*argv):
    """The exit code and what was printed."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(SystemExit) as ended:
        parse(SampleOptions, "nsqd", argv, out, err)
    return ended.value.code, out.getvalue(), err.getvalue()


@pytest.fixture
def config(tmp_path):
    """Write a TOML file and return the flag that names it."""

    def write(text):
        path = tmp_path / "nsqd.cfg"
        path.write_text(text, encoding="utf-8")
        return f"-config={path}"

    return write


# -- the command line ---------------------------------------------------------------


@pytest.mark.parametrize(
    "argv",
    [
        ("-tcp-address", ":1"),
        ("--tcp-address", ":1"),
        ("-tcp-address=:1",),
        ("--tcp-address=:1",),
    ],
)
def test_flags_take_one_or_two_dashes_and_blank_or_equals_sign(argv):
    assert read(*argv).tcp_address == ":1"


def test_options_without_flags_have_defaults():
    options = read()

    assert options == SampleOptions()
    assert options.hostname == "this-machine"


@pytest.mark.parametrize("word", ["1", "t", "T", "TRUE", "true", "True"])
def test_boolean_takes_many_words_for_yes(word):
    assert read("-deflate=false", f"-snappy={word}").snappy is True


@pytest.mark.parametrize("word", ["0", "f", "F", "FALSE", "false", "False"])
def test_boolean_takes_many_words_for_no(word):
    assert read(f"-deflate={word}").deflate is False


def test_bare_boolean_flag_means_yes():
    assert read("-deflate=0", "-snappy").snappy is True


@pytest.mark.parametrize(
    ("word", "number"),
    [("12", 12), ("+12", 12), ("0x10", 16), ("0o17", 15), ("017", 15), ("0b11", 3), ("1_000", 1000)],
)
def test_integer_may_be_written_in_several_bases(word, number):
    assert read(f"-sync-every={word}").sync_every == number


def test_repeated_list_flag_adds_up_and_does_not_split_on_commas():
    options = read("-lookupd-tcp-address=a:1,b:2", "--lookupd-tcp-address", "c:3")

    assert options.lookupds == ("a:1,b:2", "c:3")


def test_percentiles_split_on_commas():
    assert read("-e2e-percentile=1.0,.99", "-e2e-percentile", "0.5").percentiles == (1.0, 0.99, 0.5)


def test_percentiles_given_as_flags_are_sorted_largest_first():
    assert read("-e2e-percentile=.5,.99", "-e2e-percentile=1").percentiles == (1.0, 0.99, 0.5)


def test_last_of_repeated_flag_counts():
    assert read("-msg-timeout=1s", "-msg-timeout=2m").msg_timeout == 120 * SECOND


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("--nope",), "flag provided but not defined: -nope"),
        (("-msg-timeout=60",), 'invalid value "60" for flag -msg-timeout: parse error'),
        (("-sync-every", "x"), 'invalid value "x" for flag -sync-every: parse error'),
        (("-sync-every=1e3",), 'invalid value "1e3" for flag -sync-every: parse error'),
        (("-sync-every=99999999999999999999",), "flag -sync-every: value out of range"),
        (("-deflate=maybe",), 'invalid boolean value "maybe" for -deflate: parse error'),
        (("-tcp-address",), "flag needs an argument: -tcp-address"),
        (("-=5",), "bad flag syntax: -=5"),
        (("---tcp-address=1",), "bad flag syntax: ---tcp-address=1"),
        (
            ("-log-level=foo",),
            "flag -log-level: invalid log level 'foo' (debug, info, warn, error, fatal)",
        ),
    ],
)
def test_misused_flag_gives_one_sentence_and_exit_code_2(argv, sentence):
    code, out, err = refuse(*argv)

    assert code == 2
    assert sentence in err
    # One line: the original prints its usage text after the sentence, which moves it off the screen.
    assert err.count("\n") == 1
    assert err.endswith(" nsqd -help lists all flags\n")
    assert not out


@pytest.mark.parametrize(
    ("argv", "guess"),
    [
        (("-msg-timeout=5",), "parse error; write 5s (or 5ms, 5m, 5h);"),
        (("-msg-timeout=1.5",), "parse error; write 1.5s (or"),
        (("-msg-timeout=1min",), "parse error; write a duration such as 250ms, 5s or 1m30s;"),
        (("-tcp-adress=a:1",), "; is -tcp-address meant? nsqd -help"),
        (("-tcp_address=a:1",), "; is -tcp-address meant? nsqd -help"),
        (("-nothing-like-it",), "defined: -nothing-like-it; nsqd -help"),
    ],
)
def test_near_miss_is_guessed(argv, guess):
    assert guess in refuse(*argv)[2]


@pytest.mark.parametrize("argv", [("extra", "--nope"), ("-snappy", "false"), ("--", "extra"), ("-",)])
def test_stray_word_is_refused_instead_of_hiding_flags_after_it(argv):
    code, _, err = refuse(*argv)

    assert code == 2
    assert err.startswith("unexpected argument ")
    assert err.count("\n") == 1


def test_list_of_numbers_that_cannot_be_read_is_one_plain_line():
    code, _, err = refuse("-e2e-percentile=0.5,abc")

    assert code == 1
    assert err.endswith(" Could not parse: 0.5,abc\n")


@pytest.mark.parametrize("word", ["-h", "--help", "-help"])
def test_help_lists_every_flag_and_ends_well(word):
    code, _, err = refuse(word)

    assert code == 0
    assert err == usage(SampleOptions, "nsqd")
    assert all(f"\n  -{spec.flag}" in err for spec in specs(SampleOptions))


def test_usage_text_names_kinds_and_defaults():
    text = usage(SampleOptions, "nsqd")

    assert '  -tcp-address string\n    \twhere to listen (default "0.0.0.0:4150")\n' in text
    assert "  -msg-timeout duration\n    \ttime to answer (default 1m0s)\n" in text
    assert "  -deflate\n    \tallow compression (default true)\n" in text
    assert "  -lookupd-tcp-address value\n" in text


def test_version_is_printed_before_config_file_is_looked_at():
    code, out, err = refuse("-config=/does/not/exist", "--version")

    assert code == 0
    assert out.startswith("nsqd v1.3.0 (built w/nsq-cluster-")
    assert not err


# -- the file -------------------------------------------------------------------------


def test_flag_beats_file_and_file_beats_default(config):
    options = read(config('tcp_address = "file:1"\nsync_every = 3\n'), "-sync-every=2500")

    assert options.tcp_address == "file:1"
    assert options.sync_every == 2500


def test_key_is_the_one_declared(config):
    options = read(config('id = 3\nnode_id = 4\nnsqlookupd_tcp_addresses = ["a:1"]\n'))

    assert options.node_id == 3
    assert options.lookupds == ("a:1",)


def test_file_may_begin_with_byte_order_mark(config):
    assert read(config("\ufeffsync_every = 3\n")).sync_every == 3


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("snappy = true\ndeflate = false", "snappy", True),
        ("deflate = 0", "deflate", False),
        ("deflate = 1", "deflate", True),
        ('deflate = "f"', "deflate", False),
        ('sync_every = "12"', "sync_every", 12),
        ('msg_timeout = "1.5s"', "msg_timeout", 1_500_000_000),
        ("msg_timeout = 60000", "msg_timeout", 60 * SECOND),
        ('nsqlookupd_tcp_addresses = "a:1,b:2"', "lookupds", ("a:1", "b:2")),
        ('nsqlookupd_tcp_addresses = ""', "lookupds", ()),
        ("percentiles = [1, 0.5]", "percentiles", (1.0, 0.5)),
        ('percentiles = "0.5, 0.9"', "percentiles", (0.5, 0.9)),
        ('log_level = "WARN"', "log_level", LogLevel.WARN),
    ],
)
def test_file_value_is_converted(config, line, field, value):
    assert getattr(read(config(line)), field) == value


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("sync_every = 1.5", "sync_every = 1.5: it must be a whole number"),
        ("sync_every = true", "sync_every = true: it must be a whole number"),
        ('sync_every = "many"', 'sync_every = "many": it must be a whole number'),
        ("sync_every = 9223372036854775808", "sync_every = 9223372036854775808: value out of range"),
        ('msg_timeout = "1x"', 'msg_timeout = "1x": time: unknown unit "x" in duration "1x"'),
        ("msg_timeout = 1.5", 'msg_timeout = 1.5: it must be a duration such as "1m30s"'),
        ("tcp_address = 5", "tcp_address = 5: it must be text in quotes"),
        ("tcp_address = 2026-11-20", "tcp_address = 2026-11-20: it must be text in quotes"),
        ("tcp_address = {a = 1}", "tcp_address = map[a:1]: it must be text in quotes"),
        ("nsqlookupd_tcp_addresses = [1]", "nsqlookupd_tcp_addresses = [1]: it must be a list of texts"),
        ('deflate = "maybe"', 'deflate = "maybe": it must be true or false'),
        ("deflate = 1.5", "deflate = 1.5: it must be true or false"),
        ("percentiles = [true]", "percentiles = [true]: it must be a number"),
        ("percentiles = 5", "percentiles = 5: it must be a list of numbers"),
        ('percentiles = "a"', 'percentiles = "a": it must be a number'),
    ],
)
def test_file_value_of_wrong_kind_is_one_sentence_with_its_key(config, line, sentence):
    code, _, err = refuse(config(line))

    assert code == 1
    assert " FATAL: failed to load config file " in err
    assert f" - {sentence}" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("nonsense = 1", ""),
        ("worker_id = true", ""),
        ("sync_evry = 5", "; is sync_every meant?"),
        ("node_id = 4", "; that of -node-id is id"),
        ("[nsqd]\nsync_every = 5", ""),
    ],
)
def test_key_that_means_nothing_is_warned_of_by_its_name(config, line, hint):
    stderr = io.StringIO()
    options = parse(SampleOptions, "nsqd", [config(line)], stderr=stderr)

    key = line.strip("[").partition("]")[0].partition(" ")[0]
    assert options.sync_every == 2500
    (said,) = stderr.getvalue().splitlines()
    assert said.startswith("[nsqd] ")
    assert said.endswith(f": the key {key} is not known and has no effect{hint}")


def test_bad_log_level_in_file_is_fatal_line(config):
    code, _, err = refuse(config('sync_every = 1.5\nlog_level = "bogus"'))

    assert code == 1
    assert err.startswith("[nsqd] ")
    assert err.endswith(" FATAL: failed parsing log_level bogus\n")


def test_missing_file_is_fatal_line():
    code, _, err = refuse("-config=/does/not/exist")

    assert code == 1
    assert " FATAL: failed to load config file /does/not/exist - " in err
    assert err.endswith(" - open /does/not/exist: no such file or directory\n")


def test_file_that_is_no_toml_is_fatal_line(config):
    code, _, err = refuse(config("a = = b"))

    assert code == 1
    assert " FATAL: failed to load config file " in err
    assert err.count("\n") == 1


# -- all sources together -----------------------------------------------------------------------


def test_value_daemon_could_not_work_with_is_fatal_line():
    code, _, err = refuse("-sync-every=0")

    assert code == 1
    assert err.endswith(" FATAL: failed to instantiate nsqd - --sync-every must be positive\n")


def test_options_that_contradict_each_other_are_fatal_line():
    code, _, err = refuse("-snappy")

    assert code == 1
    assert err.endswith(" FATAL: failed to instantiate nsqd - --deflate and --snappy exclude each other\n")


def test_value_is_found_by_its_key_as_config_endpoint_shows_it():
    options = read("-lookupd-tcp-address=a:1")

    assert config_value(options, "nsqlookupd_tcp_addresses") == ["a:1"]
    assert config_value(options, "msg_timeout") == 60 * SECOND
    assert config_value(options, "log_level") == 2
    assert config_value(options, "tcp_address") == "0.0.0.0:4150"
    assert config_value(options, "deflate") is True


@pytest.mark.parametrize("key", ["node_id", "version", "config", "verbose", "worker_id", "", "nonsense"])
def test_missing_key_is_not_found(key):
    with pytest.raises(KeyError):
        config_value(read(), key)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        (":4160", "localhost:4160"),
        ("host:http", "host:80"),
        ("[::1]:4160", "[::1]:4160"),
        ("http://host:http", "http://host:http"),
        ("host", "host"),
        ("host:unknown", "host:unknown"),
    ],
)
def test_address_to_connect_to_is_this_machine_without_host(given, address):
    assert DIAL_LIST.from_flag(given) == DIAL_LIST.from_toml([given]) == (address,)
    assert DIAL.from_flag(given) == DIAL.from_toml(given) == address
