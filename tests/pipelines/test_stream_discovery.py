"""How a query finds its nsqds, and the sentence of the error when it does not."""

import threading

import pytest

from bench.ports import free_port
from pyspark_nsq.source.batch_reader import NsqBatchReader
from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.options import SourceOptions
from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.pipelines.conftest import Nodes
from tests.pipelines.streams import ALL, positions
from tests.support.waiting import wait_until


def test_unknown_topic_is_named(nodes):
    with pytest.raises(SourceError, match="topic 'nowhere' does not exist: no nsqlookupd has heard of it"):
        NsqStreamReader(nodes.parsed("nowhere")).initialOffset()


def test_topic_that_no_listed_nsqd_has_is_named(nodes):
    options = nodes.parsed("nowhere", lookupdHttpAddresses="", nsqdHttpAddresses=nodes.nsqds[0].http_address)
    with pytest.raises(SourceError, match="topic 'nowhere' does not exist: no nsqd of the list has it"):
        NsqStreamReader(options).initialOffset()


def test_nsqds_can_be_listed_instead_of_looked_up(nodes, topic, reader):
    listed = ",".join(nsqd.http_address for nsqd in nodes.nsqds)
    direct = NsqStreamReader(nodes.parsed(topic, lookupdHttpAddresses="", nsqdHttpAddresses=listed))

    assert direct.initialOffset() == reader.initialOffset()


def test_listed_nsqd_is_known_by_its_broadcast_address_however_it_is_spelled(nodes, topic, reader):
    spelled = ",".join(f"localhost:{nsqd.http_port}" for nsqd in nodes.nsqds)
    direct = NsqStreamReader(nodes.parsed(topic, lookupdHttpAddresses="", nsqdHttpAddresses=spelled))
    start = reader.initialOffset()
    end = direct.latestOffset(start, ALL)

    assert list(positions(end)) == list(positions(start))


@pytest.mark.parametrize("kind", ["stream", "batch"])
def test_nsqlookupd_that_is_down_is_not_waited_for_when_others_list_topic(nodes, topic, reader, caplog, kind):
    both = f"127.0.0.1:1,{nodes.lookupd.http_address}"
    options = nodes.parsed(topic, lookupdHttpAddresses=both, retryTimeout="3600")
    if kind == "stream":
        again = NsqStreamReader(options)
        again.prepareForTriggerAvailableNow()

        assert again.initialOffset() == reader.initialOffset()
    else:
        assert messages_of(options) == 6
    assert "nsqlookupd 127.0.0.1:1 did not answer, going by the others: Get " in caplog.text


def test_nsqlookupd_that_is_down_is_waited_for_when_the_others_do_not_know_topic(cluster, topic):
    nodes, empty = Nodes(cluster, 1), cluster.nsqlookupd("--reconnect-interval=1ms")
    nodes.publish(nodes.nsqds[0], topic, b"a", b"b")
    nodes.lookupd.kill()
    both = f"{nodes.lookupd.http_address},{empty.http_address}"
    with pytest.raises(SourceError, match=f"not every nsqlookupd answered the search for topic '{topic}': "):
        messages_of(nodes.parsed(topic, lookupdHttpAddresses=both))
    # It says that it is not ready until the nsqd has registered again.
    nodes.lookupd.flags = [
        flag.replace("--reconnect-interval=1ms", "--reconnect-interval=1h") for flag in nodes.lookupd.flags
    ]
    back = threading.Timer(1, nodes.lookupd.start)
    back.start()

    assert messages_of(nodes.parsed(topic, lookupdHttpAddresses=both, retryTimeout="3600")) == 2
    back.join()


def test_no_nsqlookupd_that_answers_is_named(nodes, topic):
    alone = NsqStreamReader(nodes.parsed(topic, lookupdHttpAddresses="127.0.0.1:1"))
    with pytest.raises(
        SourceError, match=r"no nsqlookupd answered .* \"http://127.0.0.1:1/lookup\?topic=.*refused"
    ):
        alone.initialOffset()


def test_non_nsqd_is_named(nodes, topic):
    address = nodes.lookupd.http_address
    options = nodes.parsed(topic, lookupdHttpAddresses="", nsqdHttpAddresses=address)
    with pytest.raises(SourceError, match=rf"nsqd {address} gave no usable answer: .* it does not say where"):
        NsqStreamReader(options).initialOffset()


def test_nsqd_written_in_go_is_named(cluster, topic):
    nsqd = cluster.go_nsqd()
    nsqd.request("POST", f"/pub?topic={topic}", b"x")
    options = SourceOptions.parse(
        {"nsqdHttpAddresses": nsqd.http_address, "topic": topic, "channel": "c", "retryTimeout": "0"}
    )
    with pytest.raises(SourceError, match=f"nsqd {nsqd.http_address} has no log .* the nsqd written in Go"):
        NsqStreamReader(options).initialOffset()


def test_tcp_port_of_nsqlookupd_and_nsqd_in_its_place_are_named(nodes, topic):
    for address, sentence in (
        (nodes.lookupd.tcp_address, "does not speak HTTP; is it the TCP port?"),
        (nodes.nsqds[0].http_address, "is not an nsqlookupd, it has no /lookup; is it an nsqd?"),
    ):
        reader = NsqStreamReader(nodes.parsed(topic, lookupdHttpAddresses=address))
        with pytest.raises(SourceError) as caught:
            reader.initialOffset()
        assert f"{address} {sentence}" in str(caught.value)


def test_tcp_port_of_nsqd_is_named(nodes, topic):
    address = nodes.nsqds[0].tcp_address
    options = nodes.parsed(topic, lookupdHttpAddresses="", nsqdHttpAddresses=address)
    with pytest.raises(SourceError, match=f"nsqd {address} does not speak HTTP; is it the TCP port?"):
        NsqStreamReader(options).initialOffset()


def messages_of(options):
    return sum(part.value.count for part in NsqBatchReader(options).partitions() if part.value)


def test_batch_read_waits_for_nsqd_that_is_not_listed_while_it_restarts(cluster, topic, caplog):
    nodes = Nodes(cluster, 1)
    (nsqd,) = nodes.nsqds
    nodes.publish(nsqd, topic, b"a", b"b")
    nsqd.stop()
    wait_until(lambda: not nodes.lookupd.get(f"/lookup?topic={topic}")["producers"], "it is not listed")
    with pytest.raises(SourceError, match=f"no nsqd that has topic '{topic}' is listed now"):
        messages_of(nodes.parsed(topic))
    assert messages_of(nodes.parsed(topic, failOnDataLoss="false")) == 0
    assert "is listed now; continuing without it" in caplog.text
    back = threading.Timer(1, nsqd.start)
    back.start()

    assert messages_of(nodes.parsed(topic, retryTimeout="30")) == 2
    back.join()


def test_batch_read_waits_for_each_of_its_topics_also_while_nsqlookupd_is_down(cluster, topic):
    nodes = Nodes(cluster)
    stays, restarts = nodes.nsqds
    nodes.publish(stays, topic, b"a")
    nodes.publish(restarts, f"{topic}-other", b"b", b"c")
    restarts.stop()
    wait_until(lambda: len(nodes.lookupd.get("/nodes")["producers"]) == 1, "it is not listed")
    lookupds = f"127.0.0.1:{free_port()},{nodes.lookupd.http_address}"
    both = f"{topic},{topic}-other"
    with pytest.raises(SourceError, match=f"no nsqd that has topic '{topic}-other' is listed now"):
        messages_of(nodes.parsed(both, lookupdHttpAddresses=lookupds))
    back = threading.Timer(1, restarts.start)
    back.start()

    assert messages_of(nodes.parsed(both, lookupdHttpAddresses=lookupds, retryTimeout="6")) == 3
    back.join()


def test_batch_read_says_that_no_nsqlookupd_answers_and_not_that_nothing_is_listed(nodes, topic, caplog):
    down = f"127.0.0.1:{free_port()}"
    with pytest.raises(SourceError, match=f"no nsqlookupd answered the search for topic '{topic}': .*{down}"):
        messages_of(nodes.parsed(topic, lookupdHttpAddresses=down))
    assert not caplog.records


def test_batch_read_does_not_go_by_nsqlookupds_that_have_just_started(nodes, topic):
    nodes.publish(nodes.nsqds[0], topic, b"a", b"b")
    started = nodes.cluster.nsqlookupd("--reconnect-interval=1h")
    with pytest.raises(
        SourceError, match=f"because it has just started: {started.http_address} got response"
    ):
        messages_of(nodes.parsed(topic, lookupdHttpAddresses=started.http_address))
    both = f"{started.http_address},{nodes.lookupd.http_address}"

    assert messages_of(nodes.parsed(topic, lookupdHttpAddresses=both)) == 2
    started.stop()


def test_batch_read_of_unknown_topic_fails_immediately(nodes):
    with pytest.raises(SourceError, match="topic 'nowhere' does not exist: no nsqlookupd has heard of it"):
        messages_of(nodes.parsed("nowhere", retryTimeout="3600"))
