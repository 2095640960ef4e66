"""The original's daemons among ours with copies: they neither keep copies nor are copied; nothing breaks.

The original is not part of this project: `tests.support.processes.go_program` says where it is looked for.
"""

import itertools

import pytest

from tests.support.processes import Cluster, GoDaemon
from tests.support.waiting import wait_until
from tests.support.wire import Wire

numbers = itertools.count(600)
GO = ["--broadcast-address=127.0.0.1"]


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def go_nsqd(cluster, lookupd, folder):
    folder.mkdir()
    flags = [*GO, f"--data-path={folder}", f"--lookupd-tcp-address={lookupd.tcp_address}"]
    return cluster.daemon("nsqd", flags, kind=GoDaemon).start()


def ours(cluster, *flags, lookupds):
    return cluster.nsqd(f"--node-id={next(numbers)}", "--carry-after=1s", *flags, lookupds=lookupds)


def producers(lookupd, path="/nodes"):
    return {one["tcp_port"]: one for one in lookupd.get(path)["producers"]}


def take(node, count):
    wire = Wire(("127.0.0.1", node.tcp_port))
    wire.subscribe("t", "c", count)
    messages = wire.messages(count)
    wire.send(*(b"FIN " + one.id + b"\n" for one in messages))
    wire.quiet()
    wire.close()
    return sorted(one.body for one in messages)


def depth(node):
    found = node.get("/stats?format=json&topic=t")["topics"] or []
    return sum(channel["depth"] for topic in found for channel in topic["channels"] or [])


def make(node):
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")


def test_the_original_s_nsqd_is_nobody_s_keeper_and_serves_as_ever(cluster, tmp_path):
    lookupd = cluster.nsqlookupd()
    go = go_nsqd(cluster, lookupd, tmp_path / "go")
    kept = ours(cluster, lookupds=[lookupd])
    wait_until(lambda: len(producers(lookupd)) == 2, "both are registered")
    named = [f"--keepers={one.tcp_address}" for one in (go, kept)]
    node = ours(cluster, "--replicas=2", *named, lookupds=[lookupd])
    for one in (go, node):
        make(one)
        one.post("/mpub?topic=t", b"\n".join(b"%d-%d" % (one.tcp_port, number) for number in range(5)))

    def whole():
        return [one["address"] for one in node.get("/carried")["kept_by"] if one["filled_topics"]]

    # Two copies are wanted, but only one nsqd keeps copies.
    wait_until(whole, "the copy is whole", seconds=20)
    assert whole() == [kept.tcp_address]
    assert node.get("/stats?format=json")["under_copied"] == 1
    assert "keeps" not in producers(lookupd)[go.tcp_port]
    assert producers(lookupd)[kept.tcp_port]["keeps"]
    assert set(producers(lookupd, "/lookup?topic=t")) == {go.tcp_port, node.tcp_port}
    node.kill()
    wait_until(lambda: depth(kept) == 5, "the keeper gives out what the dead node had", seconds=20)
    assert take(kept, 5) == sorted(b"%d-%d" % (node.tcp_port, number) for number in range(5))
    assert take(go, 5) == sorted(b"%d-%d" % (go.tcp_port, number) for number in range(5))


def test_one_that_is_named_as_a_keeper_refuses_in_its_own_words_and_publishes_go_on(cluster, tmp_path):
    lookupd = cluster.nsqlookupd()
    go = go_nsqd(cluster, lookupd, tmp_path / "go")
    node = ours(cluster, "--replicas=1", f"--keepers={go.tcp_address}", lookupds=[lookupd])
    make(node)

    wait_until(
        lambda: "no keeper answers there" in node.get("/carried")["kept_by"][0]["problem"], "it is told"
    )
    node.post("/pub?topic=t", b"x")
    make(go)
    go.post("/pub?topic=t", b"y")

    assert (take(node, 1), take(go, 1)) == ([b"x"], [b"y"])


def test_the_original_s_nsqlookupd_takes_what_ours_says_of_itself_and_names_it(cluster):
    lookupd = cluster.daemon("nsqlookupd", GO, kind=GoDaemon).start()
    kept = ours(cluster, lookupds=[lookupd])
    node = ours(cluster, "--replicas=1", f"--keepers={kept.tcp_address}", lookupds=[lookupd])
    make(node)
    wait_until(lambda: len(producers(lookupd)) == 2, "both are registered")
    wait_until(
        lambda: node.get("/carried")["kept_by"][0]["linked_topics"], "its keeper is linked", seconds=20
    )
    node.post("/mpub?topic=t", b"a\nb\nc")

    assert set(producers(lookupd, "/lookup?topic=t")) == {node.tcp_port}
    node.kill()
    wait_until(lambda: depth(kept) == 3, "the keeper gives out what the dead node had", seconds=20)
    wait_until(lambda: kept.tcp_port in producers(lookupd, "/lookup?topic=t"), "and is named")
    assert take(kept, 3) == [b"a", b"b", b"c"]
