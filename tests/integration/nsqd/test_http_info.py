"""Sections 4.4 to 4.6: /info, /stats in both forms, /config, and the probes."""

import asyncio
import re
import socket
import time

import pytest

from nsqcore.version import build
from tests.support import beside
from tests.support.http_doors import Doors
from tests.support.memory_transport import MemoryTransport
from tests.support.waiting import wait_until
from tests.support.wire import dpub, fin, mpub, req

E2E_OFF = {"count": 0, "percentiles": None}


def ours(*statistics):
    """The statistics that only ours has; none when the original is tested."""
    return statistics if beside.OURS else ()


def refused(status, code):
    return status, b'{"message":"%b"}' % code.encode()


# --- /info


def test_info_has_every_key_in_originals_order(nsqd):
    info = nsqd.get("/info")
    assert abs(info["start_time"] - time.time()) < 3600
    if beside.OURS:  # only ours has it, as the last key
        assert info.pop("build") in {build("pure"), build("compiled")}
    assert list(info.items()) == [
        ("version", "1.3.0"),
        ("broadcast_address", "127.0.0.1"),
        ("hostname", socket.gethostname()),
        ("http_port", nsqd.http_port),
        ("tcp_port", nsqd.tcp_port),
        ("start_time", info["start_time"]),
        ("max_heartbeat_interval", 60_000_000_000),
        ("max_output_buffer_size", 65536),
        ("max_output_buffer_timeout", 30_000_000_000),
        ("max_deflate_level", 6),
        *ours(("topology_zone", ""), ("topology_region", "")),  # in the original's master branch
    ]


# --- /stats as JSON


@pytest.fixture
def busy(connect, nsqd, topic):
    """A topic with a producer, and a consumer that has finished, requeued and holds messages."""
    producer, consumer = connect(), connect()
    producer.identify(client_id="prod1", hostname="host-p", user_agent="demo/1.0")
    consumer.identify(client_id="cons1", hostname="host-c", user_agent="demo/1.0")
    consumer.subscribe(topic, "billing", ready=2)
    producer.publish(topic, b"one", b"two", b"three")
    one, two = consumer.messages(2)
    consumer.send(fin(one), req(two, 60000))
    consumer.message()
    producer.publish(topic, b"four", b"five")
    consumer.message()
    producer.send(dpub(topic, 60000, b"six"))
    producer.ok()
    consumer.quiet()
    return producer, consumer


def one_of(items, **wanted):
    (found,) = [item for item in items if wanted.items() <= item.items()]
    return found


def test_stats_of_all_topics_have_disk_and_replication(nsqd):
    stats = nsqd.get("/stats?format=json")

    added = ["disk", "replicas", "under_replicated", "promoted"]
    assert list(stats) == ["version", "health", "start_time", "topics", "memory", "producers", *added]
    assert (stats["replicas"], stats["under_replicated"], stats["promoted"]) == ([], 0, [])
    assert 0 < stats["disk"]["free_bytes"] < stats["disk"]["total_bytes"]
    assert stats["disk"]["fsync_p99_ns"] >= 0


def test_stats_have_every_key_in_originals_order(nsqd, topic, busy):
    producer, consumer = busy
    stats = nsqd.get(f"/stats?format=json&topic={topic}")
    assert list(stats) == ["version", "health", "start_time", "topics", "memory", "producers"]
    assert (stats["version"], stats["health"]) == ("1.3.0", "OK")
    assert stats["start_time"] == nsqd.get("/info")["start_time"]
    assert all(isinstance(figure, int) for figure in stats["memory"].values())
    assert set(stats["memory"]) == {
        "heap_objects",
        "heap_idle_bytes",
        "heap_in_use_bytes",
        "heap_released_bytes",
        "gc_pause_usec_100",
        "gc_pause_usec_99",
        "gc_pause_usec_95",
        "next_gc_bytes",
        "gc_total_runs",
    }

    (found,) = stats["topics"]
    channels = found.pop("channels")
    assert list(found.items()) == [
        ("topic_name", topic),
        ("depth", 0),
        ("backend_depth", 0),
        ("message_count", 6),
        ("message_bytes", len("onetwothreefourfivesix")),
        ("paused", False),
        ("e2e_processing_latency", E2E_OFF),
        *ours(("dropped_count", 0), ("promoted_depth", 0)),
    ]

    (channel,) = channels
    (client,) = channel.pop("clients")
    oldest_ns = channel.pop("oldest_message_time") if beside.OURS else time.time_ns()
    assert list(channel.items()) == [
        ("channel_name", "billing"),
        ("depth", 1),
        ("backend_depth", 0),
        ("in_flight_count", 2),
        ("deferred_count", 2),
        ("message_count", 6),
        *ours(("global_msg_count", 4)),  # in the original's master branch
        ("requeue_count", 1),
        ("timeout_count", 0),
        ("client_count", 1),
        ("paused", False),
        ("e2e_processing_latency", E2E_OFF),
        *ours(
            ("returned_count", 0),
            ("dropped_count", 0),
            ("expired_count", 0),
            ("dead_count", 0),
            ("promoted_depth", 0),
        ),
    ]
    assert abs(oldest_ns / 1e9 - time.time()) < 60

    assert abs(client["connect_ts"] - time.time()) < 60
    no_tls = [
        ("tls", False),
        ("tls_cipher_suite", ""),
        ("tls_version", ""),
        ("tls_negotiated_protocol", ""),
        ("tls_negotiated_protocol_is_mutual", False),
    ]
    assert list(client.items()) == [
        ("client_id", "cons1"),
        ("hostname", "host-c"),
        ("version", "V2"),
        ("remote_address", f"127.0.0.1:{consumer.port}"),
        ("state", 3),
        ("ready_count", 2),
        ("in_flight_count", 2),
        ("message_count", 4),
        ("finish_count", 1),
        ("requeue_count", 1),
        ("connect_ts", client["connect_ts"]),
        ("sample_rate", 0),
        ("deflate", False),
        ("snappy", False),
        ("user_agent", "demo/1.0"),
        *ours(("topology_zone", ""), ("topology_region", "")),
        *no_tls,
    ]

    publisher = one_of(stats["producers"], remote_address=f"127.0.0.1:{producer.port}")
    assert list(publisher.items()) == [
        ("client_id", "prod1"),
        ("hostname", "host-p"),
        ("version", "V2"),
        ("remote_address", f"127.0.0.1:{producer.port}"),
        ("state", 0),
        ("ready_count", 0),
        ("in_flight_count", 0),
        ("message_count", 0),
        ("finish_count", 0),
        ("requeue_count", 0),
        ("connect_ts", publisher["connect_ts"]),
        ("sample_rate", 0),
        ("deflate", False),
        ("snappy", False),
        ("user_agent", "demo/1.0"),
        *ours(("topology_zone", ""), ("topology_region", "")),
        ("pub_counts", [{"topic": topic, "count": 6}]),
        *no_tls,
    ]


def test_unknown_topic_has_null_and_unknown_channel_empty_list(nsqd, topic, busy):
    unknown = nsqd.get("/stats?format=json&topic=not.there")
    assert (unknown["topics"], unknown["producers"]) == (None, None)
    assert nsqd.get("/stats?format=json&channel=not.there")["topics"] == []
    assert nsqd.get(f"/stats?format=json&topic={topic}&channel=not.there")["topics"] == []


def test_channel_filter_leaves_other_channels_and_topics_out(nsqd, connect, topic):
    for name, channel in (
        (topic, "wanted"),
        (topic, "other"),
        (topic + "-b", "wanted"),
        (topic + "-c", "other"),
    ):
        connect().subscribe(name, f"{channel}-{topic}")
    found = nsqd.get(f"/stats?format=json&channel=wanted-{topic}")["topics"]
    assert [(item["topic_name"], [c["channel_name"] for c in item["channels"]]) for item in found] == [
        (topic, [f"wanted-{topic}"]),
        (topic + "-b", [f"wanted-{topic}"]),
    ]


@pytest.mark.parametrize("word", ["false", "0"])
def test_clients_and_memory_can_be_left_out(nsqd, topic, busy, word):
    stats = nsqd.get(f"/stats?format=json&topic={topic}&include_clients={word}&include_mem={word}")
    assert "memory" not in stats
    assert stats["producers"] is None
    (channel,) = stats["topics"][0]["channels"]
    assert (channel["clients"], channel["client_count"]) == (None, 1)


@pytest.mark.parametrize("word", ["true", "1", "", "no", "False"])
def test_clients_and_memory_are_included_by_default(nsqd, topic, busy, word):
    stats = nsqd.get(f"/stats?format=json&topic={topic}&include_clients={word}&include_mem={word}")
    assert stats["memory"]
    assert stats["producers"]
    assert stats["topics"][0]["channels"][0]["clients"]


def test_empty_lists_are_empty_and_not_null(nsqd, topic):
    nsqd.post(f"/topic/create?topic={topic}")
    (found,) = nsqd.get(f"/stats?format=json&topic={topic}")["topics"]
    assert found["channels"] == []
    nsqd.post(f"/channel/create?topic={topic}&channel=ch")
    (channel,) = nsqd.get(f"/stats?format=json&topic={topic}")["topics"][0]["channels"]
    assert channel["clients"] == []
    assert "global_msg_count" not in channel


def test_producers_are_not_filtered_by_topic_but_what_they_published_is(nsqd, topic, busy):
    producer, _ = busy
    nsqd.post(f"/topic/create?topic={topic}-other")
    other = nsqd.get(f"/stats?format=json&topic={topic}-other")
    publisher = one_of(other["producers"], remote_address=f"127.0.0.1:{producer.port}")
    assert "pub_counts" not in publisher


def test_producer_of_several_topics_is_listed_with_all_of_them(nsqd, wire, topic):
    # The original lists only one of the topics.
    wire.publish(topic, b"a", b"b")
    wire.publish(topic + "-b", b"c")
    publisher = one_of(nsqd.get("/stats?format=json")["producers"], remote_address=f"127.0.0.1:{wire.port}")
    assert publisher["pub_counts"] == [{"topic": topic, "count": 2}, {"topic": topic + "-b", "count": 1}]


def test_malformed_query_is_refused(nsqd):
    assert nsqd.request("GET", "/stats?topic=%zz") == refused(400, "INVALID_REQUEST")


def test_end_to_end_latencies_are_given_when_asked_for(cluster, connect):
    nsqd = cluster.nsqd(
        "--e2e-processing-latency-percentile=0.5,0.99", "--e2e-processing-latency-percentile=1"
    )
    consumer = connect(nsqd)
    consumer.subscribe("t", ready=10)
    connect(nsqd).publish("t", b"a", b"b", b"c")
    consumer.send(*[fin(message) for message in consumer.messages(3)])
    consumer.quiet()
    (found,) = nsqd.get("/stats?format=json")["topics"]
    for latency in (found["e2e_processing_latency"], found["channels"][0]["e2e_processing_latency"]):
        assert latency["count"] == 3
        assert [entry["quantile"] for entry in latency["percentiles"]] == [1, 0.99, 0.5]
        assert all(0 < entry["value"] < 10e9 for entry in latency["percentiles"])
    assert re.search(r"e2e%: [0-9.]+[mu]?s, [0-9.]+[mu]?s, [0-9.]+[mu]?s\n", text_of(nsqd, ""))


# --- /stats as text


def text_of(nsqd, query):
    status, body = nsqd.request("GET", f"/stats?{query}")
    assert status == 200
    return body.decode()


def test_text_has_originals_columns(nsqd, topic, busy):
    producer, consumer = busy
    nsqd.post(f"/channel/pause?topic={topic}&channel=billing")
    lines = text_of(nsqd, f"topic={topic}").splitlines()
    assert re.fullmatch(r"nsqd v1\.3\.0 \(built w/\S+\)", lines[0])
    assert re.fullmatch(r"start_time \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)", lines[1])
    assert re.fullmatch(r"uptime [0-9hm.]+s", lines[2])
    assert lines[3:7] == ["", "Health: OK", "", "Memory:"]
    assert re.fullmatch(r"   heap_objects             \t\d+", lines[7])
    at = lines.index("Topics:")
    assert lines[at - 1] == ""
    assert lines[at + 1] == f"   [{topic:<15}] depth: 0     be-depth: 0     msgs: 6        e2e%: "
    assert lines[at + 2] == (
        "   *P [billing                  ] depth: 1     be-depth: 0     inflt: 2    def: 2    "
        "re-q: 1     timeout: 0     msgs: 6        e2e%: "
    )
    assert re.fullmatch(
        rf"        \[V2 host-c:{consumer.port} demo/1.0 *\] state: 3 inflt: 2    rdy: 2    fin: 1        "
        r"re-q: 1        msgs: 4        connected: \d+s",
        lines[at + 3],
    )
    assert lines[at + 4 : at + 6] == ["", "Producers:"]
    (line,) = [line for line in lines[at + 6 :] if f"host-p:{producer.port} " in line]
    assert re.fullmatch(
        rf"   \[V2 host-p:{producer.port} demo/1.0 *\] msgs: 6        topics: {topic}=6 connected: \d+s", line
    )


def test_topics_are_separated_by_empty_line(nsqd, connect, topic):
    for name in ("a", "b"):
        nsqd.post(f"/topic/create?topic={topic}-{name}")
        nsqd.post(f"/channel/create?topic={topic}-{name}&channel=only.{topic}")
    text = text_of(nsqd, f"channel=only.{topic}&include_mem=0&include_clients=0")
    topics = text.split("Topics:\n")[1].split("\n\nProducers:")[0]
    assert [block.split()[0].strip("[]") for block in topics.split("\n\n")] == [f"{topic}-a", f"{topic}-b"]


def test_missing_value_is_none(nsqd):
    lines = text_of(nsqd, "topic=not.there&include_mem=false&include_clients=false").splitlines()
    assert lines[4:] == ["Health: OK", "", "Topics: None", "", "Producers: None"]


# --- /config


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("mem_queue_size", b"10000"),
        ("msg_timeout", b"60000000000"),
        ("max_req_timeout", b"3600000000000"),
        ("log_level", b"2"),
        ("deflate", b"true"),
        ("broadcast_address", b"127.0.0.1"),
        ("log_prefix", b"[nsqd] "),
        ("statsd_address", b""),
        ("nsqlookupd_tcp_addresses", b"[]"),
        ("auth_http_addresses", b"[]"),
        ("e2e_processing_latency_percentiles", b"[]"),
        ("id", None),
    ],
)
def test_option_is_shown_by_its_toml_key(nsqd, name, shown):
    status, body = nsqd.request("GET", f"/config/{name}")
    assert status == 200
    assert body == shown or (shown is None and body.isdigit())


def test_statsd_prefix_is_shown_with_host_in_it(nsqd):
    status, body = nsqd.request("GET", "/config/statsd_prefix")
    assert (status, body) == (200, f"nsq.127_0_0_1_{nsqd.http_port}.".encode())


def test_broadcast_ports_are_shown_as_they_are_bound(nsqd):
    assert nsqd.get("/config/broadcast_tcp_port") == nsqd.tcp_port
    assert nsqd.get("/config/broadcast_http_port") == nsqd.http_port


@pytest.mark.parametrize(
    "name",
    [
        "nope",
        "config",
        "version",
        "verbose",
        "worker_id",
        "node_id",
        "lookupd_tcp_address",
        "log-level",
        "LOG_LEVEL",
    ],
)
def test_unknown_option_is_refused(nsqd, name):
    assert nsqd.request("GET", f"/config/{name}") == refused(400, "INVALID_OPTION")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("log_level", b"", refused(413, "INVALID_VALUE")),
        ("log_level", b"x" * 1048577, refused(413, "INVALID_VALUE")),
        ("nope", b"", refused(413, "INVALID_VALUE")),
        ("log_level", b"bogus", refused(400, "INVALID_VALUE")),
        ("log_level", b" debug", refused(400, "INVALID_VALUE")),
        ("log_level", b"debug\n", refused(400, "INVALID_VALUE")),
        ("log_level", b"warning", refused(400, "INVALID_VALUE")),
        ("log_level", b"1", refused(400, "INVALID_VALUE")),
        ("log_level", b"\xff", refused(400, "INVALID_VALUE")),
        ("nsqlookupd_tcp_addresses", b"127.0.0.1:4160", refused(400, "INVALID_VALUE")),
        ("nsqlookupd_tcp_addresses", b'"127.0.0.1:4160"', refused(400, "INVALID_VALUE")),
        ("nsqlookupd_tcp_addresses", b"[1]", refused(400, "INVALID_VALUE")),
        ("nsqlookupd_tcp_addresses", b"{}", refused(400, "INVALID_VALUE")),
        ("nsqlookupd_tcp_addresses", b"[" * 100_000, refused(400, "INVALID_VALUE")),
        ("max_msg_size", b"5", refused(400, "INVALID_OPTION")),
        ("nope", b"x", refused(400, "INVALID_OPTION")),
    ],
)
def test_read_only_option_is_refused(nsqd, name, value, expected):
    assert nsqd.request("PUT", f"/config/{name}", value) == expected


def test_log_level_takes_effect_immediately(cluster):
    nsqd = cluster.nsqd()
    assert nsqd.request("PUT", "/config/log_level", b"ERROR") == (200, b"4")
    assert nsqd.request("GET", "/config/log_level") == (200, b"4")
    before = len(nsqd.logs())
    nsqd.get("/info")
    assert nsqd.logs()[before:] == ""
    assert nsqd.request("PUT", "/config/log_level", b"info") == (200, b"2")
    nsqd.get("/info")
    assert " INFO: 200 GET /info " in nsqd.logs()[before:]


def test_nsqlookupds_can_be_changed_while_running(cluster):
    lookupd = cluster.nsqlookupd()
    nsqd = cluster.nsqd(lookupds=[])
    addresses = b'["%b"]' % lookupd.tcp_address.encode()
    assert nsqd.request("PUT", "/config/nsqlookupd_tcp_addresses", addresses) == (200, addresses)
    nsqd.post("/topic/create?topic=t")
    wait_until(lambda: "t" in lookupd.get("/topics")["topics"], "the topic is registered there")
    assert nsqd.request("PUT", "/config/nsqlookupd_tcp_addresses", b"[]") == (200, b"[]")


# --- ours


@pytest.mark.parametrize("probe", ["/live", "/ready", "/started"])
def test_probes_answer_ok(nsqd, probe):
    assert nsqd.request("GET", probe) == (200, b"OK")


def test_metrics_are_served(nsqd, wire, topic):
    wire.send(mpub(topic, b"a", b"b"))
    wire.ok()
    status, body = nsqd.request("GET", "/metrics")
    assert status == 200
    assert topic.encode() in body


# --- statistics of thousands of topics are gathered in chunks; other clients are served in between


TOPICS = 2000


@pytest.fixture
async def doors(tmp_path):
    async with Doors(tmp_path / "data") as doors:
        broker = doors.nsqd.broker
        for number in range(TOPICS):
            topic = broker.topic(f"t{number}#ephemeral", 1)
            broker.channel(topic, "c")
        yield doors


@pytest.mark.parametrize("path", ["/stats?format=json", "/stats", "/metrics"])
async def test_statistics_of_many_topics_block_no_client(doors, path):
    client = MemoryTransport()
    client.connect(doors.front())
    client.say(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
    turns = 0
    while f"t{TOPICS - 1}#ephemeral".encode() not in client.received:
        turns += 1
        await asyncio.sleep(0)
    client.close()
    await asyncio.sleep(0)

    assert turns > TOPICS / 50


async def test_topic_deleted_during_read_is_left_out(doors):
    client = MemoryTransport()
    client.connect(doors.front())
    client.say(b"GET /stats?format=json HTTP/1.1\r\nHost: x\r\n\r\n")
    for _ in range(5):
        await asyncio.sleep(0)
    doors.nsqd.broker.delete_topic("t999#ephemeral")
    while not client.received.endswith(b"}"):  # noqa: ASYNC110 - rounds, not time
        await asyncio.sleep(0)
    client.close()
    await asyncio.sleep(0)

    assert b"t998#ephemeral" in client.received
    assert b"t999#ephemeral" not in client.received
