"""A node dies, its keeper gives out its messages, and it comes back: real processes, kill -9."""

import itertools
import json
import shutil
import time

import pytest

from tests.support.processes import Cluster, name_each_other
from tests.support.waiting import wait_until
from tests.support.wire import Wire

numbers = itertools.count(500)
SOON = ("--carry-after=1s", "--carry-ask=5s")


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def keeper(cluster, *flags, **more):
    return cluster.nsqd(f"--node-id={next(numbers)}", *SOON, *flags, **more)


def home(cluster, *flags, **more):
    return cluster.nsqd(f"--node-id={next(numbers)}", *SOON, "--replicas=1", *flags, **more)


def linked(node):
    """Wait until the keeper's acknowledgements count for all topics of the node."""

    def counts():
        kept = node.get("/carried")["kept_by"]
        return kept and kept[0]["topics"] and kept[0]["linked_topics"] == kept[0]["topics"]

    wait_until(counts, "the keeper is linked")


def publish(node, count, topic="t"):
    node.post(f"/topic/create?topic={topic}")
    node.post(f"/channel/create?topic={topic}&channel=c")
    linked(node)
    bodies = [b"%d" % number for number in range(count)]
    node.post(f"/mpub?topic={topic}", b"\n".join(bodies))
    return bodies


def channel(node, topic="t"):
    stats = node.get(f"/stats?format=json&topic={topic}")
    channels = [one for found in stats["topics"] or [] for one in found["channels"] or []]
    return channels[0] if channels else {}


def carries(node, count):
    wait_until(
        lambda: channel(node).get("depth") == count, f"{count} messages wait at the keeper", seconds=20
    )


def take(node, count, *, finish=True):
    """Take *count* messages as a consumer; return their bodies and the connection."""
    wait_until(lambda: channel(node).get("depth", 0) >= count, f"{count} messages wait", seconds=20)
    wire = Wire(("127.0.0.1", node.tcp_port))
    wire.subscribe("t", "c", count)
    messages = wire.messages(count)
    wire.send(b"RDY 0\n")
    if finish:
        wire.send(*(b"FIN " + message.id + b"\n" for message in messages))
    return [message.body for message in messages], wire


def test_what_a_dead_node_had_taken_is_given_out_by_its_keeper_and_no_more_when_it_is_back(cluster):
    kept = keeper(cluster)
    node = home(cluster, f"--keepers={kept.tcp_address}")
    bodies = publish(node, 60)
    node.kill()
    carries(kept, 60)

    looked = kept.get("/messages?topic=t&channel=c")
    (other,) = looked["carried"]
    theirs = kept.get(f"/messages?topic=t&channel=c&log={other['log']}&limit=100")
    assert looked["messages"] == []
    assert sorted(str(one["body"]).encode() for one in theirs["messages"]) == sorted(bodies)
    assert {one["state"] for one in theirs["messages"]} == {"waiting"}
    assert kept.request("GET", "/messages?topic=t&log=nobody")[0] == 404

    first, wire = take(kept, 25)
    wait_until(lambda: not channel(kept).get("in_flight_count"), "all are answered")
    wire.close()
    node.start()
    second, wire = take(node, 35)
    wire.close()

    assert sorted(first + second) == sorted(bodies)
    wait_until(lambda: not channel(kept).get("depth"), "the keeper gives out nothing more")


def test_what_a_carrier_has_in_flight_is_answered_there(cluster):
    kept = keeper(cluster)
    node = home(cluster, f"--keepers={kept.tcp_address}")
    bodies = publish(node, 10)
    node.kill()
    carries(kept, 10)
    at_keeper, wire = take(kept, 4, finish=False)
    node.start()

    at_home, other = take(node, 6)

    assert sorted(at_keeper + at_home) == sorted(bodies)
    assert not other.has_more(0.5)
    wire.close()
    # The keeper's consumer left without an answer, so the home has its messages now.
    again, last = take(node, 4)
    assert sorted(again) == sorted(at_keeper)
    assert channel(kept)["returned_count"] == 4
    assert b'nsqd_channel_returned_total{channel="c",topic="t"} 4.0' in kept.request("GET", "/metrics")[1]
    for one in (other, last):
        one.close()


def test_what_a_node_holds_back_until_its_keepers_have_answered_is_in_its_figures(cluster):
    kept = keeper(cluster)
    node = home(cluster, f"--keepers={kept.tcp_address}", "--carry-ask=1h")
    publish(node, 10)
    node.stop()
    kept.kill()
    node.start()

    node.post("/drain")
    found = node.get("/drain")
    _, metrics = node.request("GET", "/metrics")

    assert (found["remaining"], found["drained"]) == (10, False)
    assert channel(node)["depth"] == 10
    assert b'nsqd_channel_depth{channel="c",topic="t"} 10.0' in metrics
    assert b"nsqd_drain_remaining 10.0" in metrics


def test_a_node_whose_disk_is_gone_is_carried(cluster):
    kept = keeper(cluster)
    node = home(cluster, f"--keepers={kept.tcp_address}")
    bodies = publish(node, 20)
    node.kill()
    shutil.rmtree(node.folder)
    carries(kept, 20)
    kept.kill()
    kept.start()
    carries(kept, 20)

    found, wire = take(kept, 20)
    wire.close()

    assert sorted(found) == sorted(bodies)


def test_of_two_keepers_the_one_that_was_appointed_last_gives_out_and_then_the_other(cluster):
    first, last = keeper(cluster), keeper(cluster)
    node = home(cluster, f"--keepers={first.tcp_address}", f"--keepers={last.tcp_address}", "--replicas=2")
    bodies = publish(node, 30)
    kept_by = node.get("/carried")["kept_by"]
    address = max(kept_by, key=lambda one: one["appointment"])["address"]
    high, low = sorted((first, last), key=lambda one: one.tcp_address != address)
    wait_until(lambda: all(one["linked_topics"] for one in node.get("/carried")["kept_by"]), "both link")
    node.kill()
    carries(high, 30)
    wait_until(lambda: low.get("/carried")["keeps"][0]["phase"] == "carried", "the other carries, too")
    got, wire = take(high, 20)
    wait_until(lambda: not channel(high).get("in_flight_count"), "all are answered")
    wire.close()
    assert channel(low)["depth"] == 0
    high.kill()
    wait_until(lambda: channel(low)["depth"], "the other gives out the rest", seconds=20)

    rest, wire = take(low, channel(low)["depth"])
    wire.close()

    # The second keeper may not have heard which messages were finished in the last second.
    assert set(got + rest) == set(bodies)


@pytest.mark.slow
def test_a_node_that_is_lost_with_its_disk_and_then_its_keeper_too_cost_nothing(cluster):
    lookupd = cluster.nsqlookupd()
    flags = ("--replicas=1", "--keeper-patience=2s")
    keepers = [keeper(cluster, *flags, lookupds=[lookupd]) for _ in range(2)]
    name_each_other(keepers)
    wait_until(lambda: len(lookupd.get("/nodes")["producers"]) == 2, "both are registered")
    named = [f"--keepers={one.tcp_address}" for one in keepers]
    node = home(cluster, "--keeper-patience=2s", *named, lookupds=[lookupd])
    wait_until(lambda: node.get("/carried")["kept_by"], "it has a keeper", seconds=20)
    bodies = publish(node, 30)
    address = node.get("/carried")["kept_by"][0]["address"]
    first, second = sorted(keepers, key=lambda one: not address.endswith(f":{one.tcp_port}"))
    # The first keeper also keeps copies for the second one, which has no topics.
    identity = next(one["identity"] for one in first.get("/carried")["keeps"] if one["topics"])
    node.kill()
    shutil.rmtree(node.folder)
    carries(first, 30)

    def copied_on():
        keeps = [one for one in second.get("/carried")["keeps"] if one["identity"] == identity]
        return keeps and keeps[0]["filled_topics"] == keeps[0]["linked_topics"] == 1

    wait_until(copied_on, "its keeper has appointed the other one in its place", seconds=40)
    got, wire = take(first, 10)
    wait_until(lambda: not channel(first).get("in_flight_count"), "all are answered")
    wire.close()
    first.kill()
    shutil.rmtree(first.folder)

    wait_until(lambda: channel(second).get("depth", 0) >= 20, "the other one gives out the rest", seconds=30)
    rest, wire = take(second, channel(second)["depth"])
    wire.close()
    assert set(got + rest) == set(bodies)


def test_a_topic_that_was_deleted_at_the_keeper_does_not_come_back_with_it(cluster):
    kept = keeper(cluster)
    node = home(cluster, f"--keepers={kept.tcp_address}")
    publish(node, 5)
    node.kill()
    carries(kept, 5)
    kept.post("/topic/delete?topic=t")

    kept.kill()
    kept.start()

    wait_until(lambda: kept.get("/carried")["keeps"][0]["phase"] == "carried", "it carries again", seconds=20)
    assert not kept.get("/stats?format=json&topic=t")["topics"]
    # The home still has the topic, but none of its earlier messages. Later messages are carried as usual.
    node.start()
    linked(node)
    wait_until(lambda: not channel(node).get("depth"), "the home has heard of it", seconds=20)
    node.post("/channel/create?topic=t&channel=c")
    node.post("/pub?topic=t", b"new")
    node.kill()
    carries(kept, 1)
    found, wire = take(kept, 1)
    wire.close()
    assert found == [b"new"]


def test_a_topic_whose_copy_cannot_be_read_keeps_no_other_one_back_and_is_named(cluster):
    kept = keeper(cluster)
    node = home(cluster, f"--keepers={kept.tcp_address}")
    bodies = publish(node, 5)
    publish(node, 7, "u")
    wait_until(lambda: node.get("/carried")["kept_by"][0]["linked_topics"] == 2, "both are linked")
    node.kill()
    (log,) = kept.folder.glob("carried/*/*/u.topic/00000001.log")
    log.rename(log.with_suffix(".aside"))
    log.mkdir()
    carries(kept, 5)

    found, wire = take(kept, 5)
    wire.close()
    assert sorted(found) == sorted(bodies)
    (shown,) = kept.get("/carried")["keeps"]
    assert (shown["phase"], shown["given_out_topics"], list(shown["problems"])) == ("carried", 1, ["u"])
    assert "topic u of the copy cannot be given out" in kept.logs()
    assert b"nsqd_carried_unreadable 1" in kept.request("GET", "/metrics")[1]

    log.rmdir()
    log.with_suffix(".aside").rename(log)
    wait_until(lambda: channel(kept, "u").get("depth") == 7, "it is given out, too", seconds=20)
    wait_until(lambda: not kept.get("/carried")["keeps"][0]["problems"], "and nothing is wrong any more")


def test_keepers_are_chosen_among_the_named_ones_that_nsqlookupd_lists(cluster):
    lookupd = cluster.nsqlookupd()
    kept = keeper(cluster, lookupds=[lookupd])
    deaf = cluster.nsqd(f"--node-id={next(numbers)}", "--keep-for-others=false", lookupds=[lookupd])
    wait_until(lambda: len(lookupd.get("/nodes")["producers"]) == 2, "both are registered")
    named = [f"--keepers={one.tcp_address}" for one in (deaf, kept)]
    node = home(cluster, *named, lookupds=[lookupd])
    bodies = publish(node, 5)

    (one,) = node.get("/carried")["kept_by"]
    said = {
        producer["tcp_port"]: producer.get("keeps", False) for producer in lookupd.get("/nodes")["producers"]
    }
    assert one["address"].endswith(f":{kept.tcp_port}")
    assert (said[kept.tcp_port], said[deaf.tcp_port]) == (True, False)

    node.kill()
    carries(kept, 5)
    wait_until(
        lambda: any(
            producer["tcp_port"] == kept.tcp_port for producer in lookupd.get("/lookup?topic=t")["producers"]
        ),
        "consumers are told of the keeper",
    )
    found, wire = take(kept, 5)
    wire.close()
    assert sorted(found) == sorted(bodies)


def test_a_node_whose_keeper_drains_finds_another_while_that_is_there_yet(cluster):
    lookupd = cluster.nsqlookupd()
    keepers = [keeper(cluster, lookupds=[lookupd]) for _ in range(2)]
    wait_until(lambda: len(lookupd.get("/nodes")["producers"]) == 2, "both are registered")
    node = home(cluster, *(f"--keepers={one.tcp_address}" for one in keepers), lookupds=[lookupd])
    bodies = publish(node, 5)
    address = node.get("/carried")["kept_by"][0]["address"]
    first, second = sorted(keepers, key=lambda one: one.tcp_address != address)

    first.post("/drain")

    def kept_by_second():
        (one,) = node.get("/carried")["kept_by"]
        full = one["filled_topics"] == one["linked_topics"] == one["topics"]
        return one["address"].endswith(f":{second.tcp_port}") and one["linked_since"] and full

    wait_until(kept_by_second, "it has another keeper", seconds=20)
    wait_until(lambda: not first.get("/carried")["keeps"], "the first has no copy any more", seconds=30)
    first.kill()
    node.kill()
    found, wire = take(second, 5)
    wire.close()
    assert sorted(found) == sorted(bodies)


def test_appointments_are_on_the_disk(cluster):
    kept = keeper(cluster)
    node = home(cluster, f"--keepers={kept.tcp_address}")
    publish(node, 1)

    noted = json.loads((node.folder / "appointments.json").read_text())

    assert noted["current"][0][:2] == [1, kept.tcp_address]


def test_it_is_told_since_when_copies_are_linked_and_what_of_them_is_carried(cluster):
    kept = keeper(cluster)
    node = home(cluster, f"--keepers={kept.tcp_address}")
    before = time.time()
    publish(node, 60)
    (by,) = node.get("/carried")["kept_by"]
    (keeps,) = kept.get("/carried")["keeps"]
    (topic,) = node.get("/stats?format=json")["topics"]
    node.kill()
    carries(kept, 60)
    (carried,) = kept.get("/carried")["keeps"]

    assert before - 60 < by["linked_since"] < time.time() + 1
    assert before - 60 < keeps["linked_since"] < time.time() + 1
    assert (topic["copies"], topic["copies_wanted"]) == (1, 1)
    assert (keeps["phase"], keeps["owed"]) == ("kept", 0)
    assert (carried["phase"], carried["owed"], carried["linked_since"]) == ("carried", 60, 0)


def test_a_node_says_of_each_topic_that_it_has_fewer_copies_than_wanted(cluster):
    node = home(cluster, "--keepers=127.0.0.1:1")
    node.post("/topic/create?topic=t")

    (topic,) = node.get("/stats?format=json")["topics"]

    assert (topic["copies"], topic["copies_wanted"]) == (0, 1)
    assert "copies" not in cluster.nsqd().get("/stats?format=json")


def test_a_keeper_whose_disk_is_nearly_full_still_gives_a_home_back_what_it_carried(cluster):
    """Otherwise both would give it out, and the copy would never go, whose room is missing."""
    kept = keeper(cluster)
    node = home(cluster, f"--keepers={kept.tcp_address}")
    bodies = publish(node, 10)
    node.kill()
    carries(kept, 10)
    kept.stop()
    kept.flags.append("--disk-watermark=99.999999%")
    kept.start()
    carries(kept, 10)
    first, wire = take(kept, 4)
    wait_until(lambda: not channel(kept).get("in_flight_count"), "all are answered")
    wire.close()

    node.start()

    wait_until(lambda: not channel(kept).get("depth"), "the keeper gives out nothing more")
    second, wire = take(node, 6)
    wire.close()
    assert sorted(first + second) == sorted(bodies)
