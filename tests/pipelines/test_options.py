"""Options of the data source: every mistake is one sentence that names the option."""

import pytest

from nsqclient._config import TLS_OPTIONS
from pyspark_nsq.sink.options import NAMES as SINK_NAMES
from pyspark_nsq.sink.options import SinkOptions
from pyspark_nsq.source.errors import OptionError
from pyspark_nsq.source.options import NAMES, SourceOptions, StartingOffsets

LEAST = {"lookupdHttpAddresses": "127.0.0.1:4161", "topic": "orders", "channel": "archive"}


def parse(**changes):
    return SourceOptions.parse({**LEAST, **changes})


def test_required_options_suffice():
    options = parse().for_stream()

    assert options.lookupd_http_addresses == ("127.0.0.1:4161",)
    assert (options.topic, options.channel) == ("orders", "archive")
    assert options.starting_offsets is None
    assert options.max_offsets_per_trigger is None
    assert options.min_partitions is None
    assert options.fail_on_data_loss
    assert (options.request_timeout_s, options.retry_s) == (10.0, 10.0)


def test_names_of_options_may_have_any_case():
    options = parse(MAXOFFSETSPERTRIGGER="1000", failondataloss="False", StartingOffsets="Earliest")

    assert options.max_offsets_per_trigger == 1000
    assert not options.fail_on_data_loss
    assert options.starting_offsets is StartingOffsets.EARLIEST


def test_addresses_are_separated_by_commas_and_each_counts_once():
    options = parse(lookupdHttpAddresses=" a:4161, https://b:4161 ,,a:4161,[::1]:4161")

    assert options.lookupd_http_addresses == ("a:4161", "https://b:4161", "[::1]:4161")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"topic": ""}, "exactly one of the options topic and topicPattern must be given; neither is"),
        ({"topic": "no spaces"}, "option topic is 'no spaces', which is not a valid topic name"),
        ({"channel": "a/b"}, "option channel is 'a/b', which is not a valid channel name"),
        (
            {"maxOffsetsPerTrigger": "0"},
            "option maxOffsetsPerTrigger is '0'; it must be a whole number above 0",
        ),
        (
            {"maxOffsetsPerTrigger": "1e3"},
            "option maxOffsetsPerTrigger is '1e3'; it must be a whole number above 0",
        ),
        ({"minPartitions": "-1"}, "option minPartitions is '-1'; it must be a whole number above 0"),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss is 'no'; it must be true or false"),
        (
            {"requestTimeout": "0"},
            "option requestTimeout is '0'; it must be a duration such as",
        ),
        *(
            ({"maxTriggerDelay": text}, f"option maxTriggerDelay is {text!r}; it must be a duration such as")
            for text in ("nan", "soon", "0s", "25h", "-1s", "1d", "m", "1e3", "1 s 2")
        ),
        ({"startingOffsets": "newest"}, "option startingOffsets is 'newest'; there are: acknowl"),
        (
            {"lookupdHttpAddresses": "host"},
            "option lookupdHttpAddresses has 'host'; it must be host:port",
        ),
        ({"lookupdHttpAddresses": "h:70000"}, "has 'h:70000'; it must be host:port"),
        ({"lookupdHttpAddresses": "http://h:1"}, "has 'http://h:1'; it must be host:port"),
        ({"lookupdHttpAddresses": ""}, "exactly one of the options"),
        ({"nsqdHttpAddresses": "h:4151"}, "exactly one of the options"),
        (
            {"topicPattern": "o.*"},
            "exactly one of the options topic and topicPattern must be given; both are",
        ),
        ({"topic": "", "topicPattern": "o("}, "option topicPattern is 'o(', which is no regular expression"),
        ({"topic": "a,b c"}, "option topic is 'b c', which is not a valid topic name"),
        ({"bodyFormat": "avro"}, "option bodyFormat is 'avro'; there are: binary, json"),
        (
            {"startingTimestamp": "now"},
            "option startingTimestamp is 'now'; it must be a time such as 2026-11",
        ),
        (
            {"startingTimestamp": "2026-11-20", "startingOffsets": "earliest"},
            "the options startingOffsets and startingTimestamp exclude each other",
        ),
        ({"endingTimestamp": '{"a": 1'}, "which is no JSON"),
        ({"endingTimestamp": '{"b": 1}'}, "names topic 'b', which the query does not read"),
        ({"endingTimestamp": '{"orders": "noon"}'}, "'noon'; it must be a time such as 2026-11-20T09:00:00Z"),
        ({"startingOffsets": '{"n:1": "x"}'}, "it must be JSON with a position for each nsqd, such as"),
        ({"startingOffsets": "{"}, "it must be JSON with a position for each nsqd, such as"),
        ({"startingOffsets": '{"n":' * 50_000}, "it must be JSON with a position for each nsqd, such as"),
        ({"maxOffsetsPerTrigger": "9" * 5000}, "it must be a whole number above 0"),
        ({"startingTimestamp": "9" * 5000}, "it must be a time such as 2026-11"),
        ({"kafka.bootstrap.servers": "h:9092"}, "is of another source; use lookupdHttpAddresses or"),
        ({"subscribe": "other"}, "is given twice, under two names"),
        ({"maxOffsetPerTrigger": "5"}, "option maxOffsetPerTrigger is not known; there are:"),
    ],
)
def test_invalid_option_is_named(changes, sentence):
    with pytest.raises(OptionError) as caught:
        parse(**changes)

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        ("stream", {"channel": ""}, "option channel is missing: a stream acknowledges"),
        ("stream", {"channel": "c#ephemeral"}, "an ephemeral channel is gone when nsqd restarts"),
        (
            "stream",
            {"endingTimestamp": "2026-11-20"},
            "endingOffsets and endingTimestamp are for batch reads",
        ),
        ("batch", {"channel": "", "startingOffsets": "acknowledged"}, "option channel is missing"),
        ("batch", {"startingOffsets": "latest"}, 'startingOffsets is "latest"'),
    ],
)
def test_option_of_other_kind_of_read_is_refused(kind, changes, sentence):
    parsed = parse(**changes)
    with pytest.raises(OptionError, match=sentence):
        parsed.for_stream() if kind == "stream" else parsed.for_batch()
    assert parse(channel="").for_batch().channel == ""


def test_tls_options_have_names_of_client():
    parsed = parse(tlsRootCaFile="ca.pem", tlsCertFile="a", tlsKeyFile="b", tlsInsecureSkipVerify="true")

    assert parsed.tls == {
        "tls_root_ca_file": "ca.pem",
        "tls_cert": "a",
        "tls_key": "b",
        "tls_insecure_skip_verify": "true",
    }
    assert parsed.tls.keys() <= TLS_OPTIONS
    assert parse().tls == {}
    with pytest.raises(OptionError, match="tlsCertFile and tlsKeyFile are needed together"):
        parse(tlsCertFile="a")


def test_options_are_described_in_documentation(pytestconfig):
    page = (pytestconfig.rootpath / "docs/spark-reference.md").read_text()

    assert [name for name in {*NAMES, *SINK_NAMES} if f"`{name}`" not in page] == []


def test_positions_are_given_for_each_nsqd_alone_or_below_its_topic():
    parsed = parse(startingOffsets='{"n:1": 5, "orders": {"n:2": 7}}', endingOffsets='{"n:1": 9}')

    assert parsed.starting_positions == {"n:1": 5, "orders@n:2": 7}
    assert parsed.ending_positions == {"n:1": 9}


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("10s", 10), ("1.5m", 90), ("24h", 86_400), ("7", 7), ("0.5", 0.5)]
)
def test_duration_has_unit_or_is_in_seconds(text, seconds):
    assert parse(maxTriggerDelay=text).max_trigger_delay_s == seconds


@pytest.mark.parametrize(
    "text",
    ["2025-11-20T10:00:01.5Z", "2025-11-20T11:00:01.5+01:00", "2025-11-20 10:00:01.5", "1763632801500"],
)
def test_time_has_zone_or_is_in_utc_or_in_milliseconds(text):
    assert parse(startingTimestamp=text).starting_ns("orders") == 1_763_632_801_500_000_000


def test_timestamp_may_differ_by_topic():
    parsed = parse(topic="a,b,c", startingTimestamp='{"a": 1, "b": "1970-01-01T00:00:02Z"}')

    assert [parsed.starting_ns(topic) for topic in "abc"] == [1_000_000, 2_000_000_000, None]
    assert [parsed.ending_ns(topic) for topic in "abc"] == [None] * 3


def test_names_of_kafka_connector_are_accepted():
    given = {"lookupdHttpAddresses": "l:4161", "subscribe": "orders,returns", "kafka.group.id": "archive"}
    parsed = SourceOptions.parse(given)

    assert (parsed.topics, parsed.topic, parsed.channel) == (("orders", "returns"), "", "archive")
    assert parsed.on("returns").topic == "returns"
    assert parsed.described == "'orders', 'returns'"


# --- options of a write


SINK = {"nsqdHttpAddresses": "n:4151", "topic": "orders"}


def test_sink_options_have_defaults_and_pass_over_those_of_spark():
    options = SinkOptions.parse({**SINK, "checkpointLocation": "x", "path": ""})

    assert (options.topic, options.nsqd_http_addresses) == ("orders", ("n:4151",))
    assert (options.max_batch_bytes, options.retry_s) == (1 << 20, 30.0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"topic": "no spaces"}, "option topic is 'no spaces', which is not a valid topic name"),
        ({"lookupdHttpAddresses": "l:4161"}, "exactly one of the options lookupdHttpAddresses and nsqd"),
        ({"channel": "c"}, "option channel is not known; there are: lookupdHttpAddresses"),
        ({"maxBatchBytes": "0"}, "option maxBatchBytes is '0'; it must be a whole number above 0"),
    ],
)
def test_invalid_sink_option_is_named(changes, sentence):
    with pytest.raises(OptionError, match=sentence):
        SinkOptions.parse({**SINK, **changes})
