"""How a query finds its nsqds, and the sentence of the error when it does not."""

import pytest

from bench.ports import free_port
from pyspark_nsq.source.batch_reader import NsqBatchReader
from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.options import SourceOptions
from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.pipelines.conftest import Nodes, started_later
from tests.pipelines.streams import ALL, positions
from tests.support.waiting import wait_until


def messages_of(options):
    return sum(part.value.count for part in NsqBatchReader(options).partitions() if part.value)


def tcp_of_nsqd(nodes):
    return nodes.nsqds[0].tcp_address


def http_of_nsqd(nodes):
    return nodes.nsqds[0].http_address


def tcp_of_nsqlookupd(nodes):
    return nodes.lookupd.tcp_address


def http_of_nsqlookupd(nodes):
    return nodes.lookupd.http_address


def nothing(_nodes):
    return "127.0.0.1:1"


@pytest.mark.parametrize(
    ("option", "place", "sentence"),
    [
        ("lookupd", http_of_nsqlookupd, "topic '{topic}' does not exist: no nsqlookupd has heard of it"),
        ("nsqd", http_of_nsqd, "topic '{topic}' does not exist: no nsqd of the list has it"),
        ("lookupd", nothing, r'no nsqlookupd answered .* "http://{address}/lookup\?topic=.*refused'),
        ("lookupd", tcp_of_nsqlookupd, "{address} does not speak HTTP; is it the TCP port?"),
        ("lookupd", http_of_nsqd, "{address} is not an nsqlookupd, it has no /lookup; is it an nsqd?"),
        ("nsqd", tcp_of_nsqd, "nsqd {address} does not speak HTTP; is it the TCP port?"),
        ("nsqd", http_of_nsqlookupd, "nsqd {address} gave no usable answer: .* it does not say where"),
    ],
)
def test_wrong_topic_or_address_is_named(nodes, topic, option, place, sentence):
    address = place(nodes)
    options = {"lookupdHttpAddresses": "", f"{option}HttpAddresses": address}
    with pytest.raises(SourceError, match=sentence.format(topic=topic, address=address)):
        NsqStreamReader(nodes.parsed(topic, **options)).initialOffset()


def test_unknown_topic_of_batch_read_is_named_without_wait(nodes):
    with pytest.raises(SourceError, match="topic 'nowhere' does not exist: no nsqlookupd has heard of it"):
        messages_of(nodes.parsed("nowhere", retryTimeout="3600"))


def test_pattern_that_no_topic_matches_is_named(nodes):
    with pytest.raises(SourceError, match=r"topic matching 'no-\.\*' does not exist: no nsqlookupd"):
        NsqStreamReader(nodes.parsed("", topicPattern="no-.*")).initialOffset()


def test_nsqd_written_in_go_is_named(cluster, topic):
    nsqd = cluster.go_nsqd()
    nsqd.request("POST", f"/pub?topic={topic}", b"x")
    options = SourceOptions.parse(
        {"nsqdHttpAddresses": nsqd.http_address, "topic": topic, "channel": "c", "retryTimeout": "0"}
    )
    with pytest.raises(SourceError, match=f"nsqd {nsqd.http_address} has no log .* the nsqd written in Go"):
        NsqStreamReader(options).initialOffset()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_listed_nsqd_has_name_by_its_broadcast_address(nodes, topic, reader, host):
    listed = ",".join(f"{host}:{nsqd.http_port}" for nsqd in nodes.nsqds)
    direct = NsqStreamReader(nodes.parsed(topic, lookupdHttpAddresses="", nsqdHttpAddresses=listed))
    start = reader.initialOffset()

    assert direct.initialOffset() == start
    assert list(positions(direct.latestOffset(start, ALL))) == list(positions(start))


# --- nsqlookupds that are down or have just started, and nsqds that restart


@pytest.mark.parametrize("kind", ["stream", "batch"])
def test_down_nsqlookupd_is_not_awaited_when_others_list_topic(nodes, topic, reader, caplog, kind):
    both = f"127.0.0.1:1,{nodes.lookupd.http_address}"
    options = nodes.parsed(topic, lookupdHttpAddresses=both, retryTimeout="3600")
    if kind == "stream":
        again = NsqStreamReader(options)
        again.prepareForTriggerAvailableNow()
        assert again.initialOffset() == reader.initialOffset()
    else:
        assert messages_of(options) == 6
    assert "nsqlookupd 127.0.0.1:1 did not answer, going by the others: Get " in caplog.text


def test_down_nsqlookupd_is_awaited_when_others_do_not_list_topic(cluster, topic):
    nodes, empty = Nodes(cluster, 1), cluster.nsqlookupd("--reconnect-interval=1ms")
    nodes.publish(nodes.nsqds[0], topic, b"a", b"b")
    nodes.lookupd.kill()
    both = f"{nodes.lookupd.http_address},{empty.http_address}"
    with pytest.raises(SourceError, match=f"not every nsqlookupd answered the search for topic '{topic}': "):
        messages_of(nodes.parsed(topic, lookupdHttpAddresses=both))
    # It says that it is not ready until the nsqd has registered again.
    nodes.lookupd.flags = [flag.replace("=1ms", "=1h") for flag in nodes.lookupd.flags]
    with started_later(nodes.lookupd):
        assert messages_of(nodes.parsed(topic, lookupdHttpAddresses=both, retryTimeout="3600")) == 2


def test_batch_read_waits_for_each_topic_while_nsqd_restarts(cluster, topic, caplog):
    nodes = Nodes(cluster)
    stays, restarts = nodes.nsqds
    nodes.publish(stays, topic, b"a")
    nodes.publish(restarts, f"{topic}-other", b"b", b"c")
    restarts.stop()
    wait_until(lambda: len(nodes.lookupd.get("/nodes")["producers"]) == 1, "it is not listed")
    both = f"{topic},{topic}-other"
    # Another nsqlookupd is down.
    places = {"lookupdHttpAddresses": f"127.0.0.1:{free_port()},{nodes.lookupd.http_address}"}
    with pytest.raises(SourceError, match=f"no nsqd that has topic '{topic}-other' is listed now"):
        messages_of(nodes.parsed(both, **places))
    assert messages_of(nodes.parsed(both, failOnDataLoss="false")) == 1
    assert "is listed now; continuing without it" in caplog.text
    with started_later(restarts):
        assert messages_of(nodes.parsed(both, **places, retryTimeout="30")) == 3


def test_batch_read_without_nsqlookupd_says_so_once(nodes, topic, caplog):
    down = f"127.0.0.1:{free_port()}"
    with pytest.raises(SourceError, match=f"no nsqlookupd answered the search for topic '{topic}': .*{down}"):
        messages_of(nodes.parsed(topic, lookupdHttpAddresses=down))
    assert not caplog.records


def test_batch_read_does_not_trust_nsqlookupds_that_have_just_started(nodes, topic):
    nodes.publish(nodes.nsqds[0], topic, b"a", b"b")
    started = nodes.cluster.nsqlookupd("--reconnect-interval=1h")
    with pytest.raises(
        SourceError, match=f"because it has just started: {started.http_address} got response"
    ):
        messages_of(nodes.parsed(topic, lookupdHttpAddresses=started.http_address))
    both = f"{started.http_address},{nodes.lookupd.http_address}"

    assert messages_of(nodes.parsed(topic, lookupdHttpAddresses=both)) == 2
    started.stop()
