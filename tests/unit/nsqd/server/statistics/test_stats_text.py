"""The text form of /stats, from the statistics of the JSON form."""

import re

import pytest

from nsqd.server.statistics.stats_text import render

SECOND = 1_000_000_000
STARTED = 1_700_000_000
OFF = {"count": 0, "percentiles": None}


def client(**more):
    return {
        "version": "V2",
        "hostname": "host",
        "remote_address": "10.0.0.1:50390",
        "user_agent": "demo/1.0",
        "state": 3,
        "in_flight_count": 2,
        "ready_count": 5,
        "finish_count": 1,
        "requeue_count": 0,
        "message_count": 3,
        "connect_ts": STARTED,
        **more,
    }


def channel(name, **more):
    return {
        "channel_name": name,
        "depth": 0,
        "backend_depth": 0,
        "in_flight_count": 0,
        "deferred_count": 0,
        "requeue_count": 0,
        "timeout_count": 0,
        "message_count": 0,
        "paused": False,
        "clients": [],
        "e2e_processing_latency": OFF,
        **more,
    }


def topic(name, *channels, **more):
    return {
        "topic_name": name,
        "channels": list(channels),
        "depth": 0,
        "backend_depth": 0,
        "message_count": 0,
        "paused": False,
        "e2e_processing_latency": OFF,
        **more,
    }


def lines(topics=None, producers=None, **more):
    stats = {"health": "OK", "start_time": STARTED, "topics": topics, "producers": producers, **more}
    return "".join(render(stats, (STARTED + 90) * SECOND)).split("\n")


def test_with_nothing_to_show_it_says_none():
    text = lines()
    assert re.fullmatch(r"nsqd v\S+ \(built w/\S+\)", text[0])
    assert text[1].startswith("start_time 2023-11-1")
    assert text[2:] == ["uptime 1m30s", "", "Health: OK", "", "Topics: None", "", "Producers: None", ""]


def test_memory_names_are_padded_before_tab():
    assert lines(memory={"heap_objects": 7})[6:8] == ["Memory:", "   heap_objects             \t7"]


def test_topics_and_channels_are_indented_and_their_numbers_padded():
    text = lines([topic("orders", channel("billing", depth=123456), depth=7), topic("x", channel("y"))])
    rest = "be-depth: 0     inflt: 0    def: 0    re-q: 0     timeout: 0     msgs: 0        e2e%: "
    at = text.index("Topics:")
    assert text[at + 1 :] == [
        "   [orders         ] depth: 7     be-depth: 0     msgs: 0        e2e%: ",
        f"      [billing                  ] depth: 123456 {rest}",
        "",
        "   [x              ] depth: 0     be-depth: 0     msgs: 0        e2e%: ",
        f"      [y                        ] depth: 0     {rest}",
        "",
        "Producers: None",
        "",
    ]


def test_what_is_paused_has_star_in_its_indent():
    text = lines([topic("t", channel("c", paused=True), paused=True)])
    assert [line[:8] for line in text if "depth" in line] == ["*P [t   ", "   *P [c"]


@pytest.mark.parametrize("clients", [None, []])
def test_channel_without_clients_has_no_lines_below_it(clients):
    assert len(lines([topic("t", channel("c", clients=clients))])) == len(lines([topic("t", channel("c"))]))


def test_consumer_is_shown_with_its_counts_and_producer_with_its_topics():
    text = lines(
        [topic("t", channel("c", clients=[client()]))],
        [client(pub_counts=[{"topic": "a", "count": 3}, {"topic": "b", "count": 40}])],
    )
    consumer = next(line for line in text if line.startswith("        [V2"))
    assert consumer.startswith(
        "        [V2 host:50390 demo/1.0  ] state: 3 inflt: 2    rdy: 5    fin: 1        re-q: 0        "
        "msgs: 3        connected: "
    )
    producer = text[text.index("Producers:") + 1]
    assert producer.startswith("   [V2 host:50390 demo/1.0  ] msgs: 43       topics: a=3, b=40 connected: ")


@pytest.mark.parametrize(
    ("value_ns", "shown"), [(999, "999.0ns"), (1_500, "1.5us"), (2_500_000, "2.5ms"), (61 * SECOND, "61.0s")]
)
def test_latencies_are_shown_in_unit_that_suits_them(value_ns, shown):
    latency = {"count": 1, "percentiles": [{"quantile": 1, "value": value_ns}]}
    (line,) = [line for line in lines([topic("t", e2e_processing_latency=latency)]) if "[t " in line]
    assert line.endswith(f"e2e%: {shown}")
