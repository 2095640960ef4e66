"""A node leaves permanently, another serves what it owed: real processes, folders deleted at the end."""

import itertools
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench.ports import free_port
from tests.support.processes import name_each_other
from tests.support.waiting import wait_until
from tests.support.wire import Wire

ROOT = Path(__file__).parents[3]
numbers = itertools.count(700)
# The taker must not wait for --carry-after before it gives out handed-over messages.
LATER = "--carry-after=60s"


def nsqd(cluster, *flags, **more):
    return cluster.nsqd(f"--node-id={next(numbers)}", LATER, *flags, **more)


def command(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    out, err = process.communicate(timeout=90)
    return process.returncode, out, err


def drain(node, *flags):
    return ended(command("nsqd.drain", f"--http-address={node.http_address}", *flags))


def hand_over(folder, *takers):
    return ended(
        command("nsqd.data", "hand-over", f"--data-path={folder}", *(f"--to={one}" for one in takers))
    )


def refused(result, sentence):
    code, _, err = result
    assert code, result
    assert sentence in err
    assert "Traceback" not in err


def publish(node, *bodies, topic="t", defer=0):
    more = f"&defer={defer}" if defer else ""
    if more:
        for body in bodies:
            node.post(f"/pub?topic={topic}{more}", body)
    else:
        node.post(f"/mpub?topic={topic}", b"\n".join(bodies))
    return list(bodies)


def make(node, *channels, topic="t"):
    node.post(f"/topic/create?topic={topic}")
    for name in channels:
        node.post(f"/channel/create?topic={topic}&channel={name}")


def stats(node, topic="t", name="c"):
    found = node.get(f"/stats?format=json&topic={topic}")["topics"] or []
    channels = [one for topic in found for one in topic["channels"] or []]
    return next((one for one in channels if one["channel_name"] == name), {})


def waits(node, count, topic="t", name="c"):
    wait_until(
        lambda: stats(node, topic, name).get("depth") == count, f"{count} of {topic}/{name} wait", seconds=30
    )


def take(node, count, topic="t", name="c"):
    """Take and finish *count* messages, and assert that there are no more."""
    waits(node, count, topic, name)
    wire = Wire(("127.0.0.1", node.tcp_port))
    wire.subscribe(topic, name, count + 10)
    messages = wire.messages(count)
    wire.send(*(b"FIN " + message.id + b"\n" for message in messages))
    wait_until(lambda: not stats(node, topic, name)["in_flight_count"], "all are answered", seconds=30)
    assert not wire.has_more(0.1)
    wire.close()
    return messages


def bodies(messages):
    return sorted(message.body for message in messages)


def test_what_nobody_reads_is_handed_over_exactly_and_the_folder_may_go(cluster):
    taker, node = nsqd(cluster), nsqd(cluster)
    make(node, "c", "other")
    make(node, topic="backlog")
    sent = publish(node, *(b"%d" % number for number in range(20)))
    put_off = publish(node, b"later", defer=8000)
    waiting = publish(node, b"first", b"second", topic="backlog")
    due = time.monotonic() + 7.5
    # Two messages are finished on one channel, and one was tried.
    wire = Wire(("127.0.0.1", node.tcp_port))
    wire.subscribe("t", "c", 3)
    done = wire.messages(3)
    wire.send(*(b"FIN " + one.id + b"\n" for one in done[:2]), b"REQ " + done[2].id + b" 0\n")
    wait_until(lambda: stats(node)["depth"] == 18 - 3, "three more are in flight", seconds=20)
    wire.close()
    waits(node, 18)

    code, out, err = drain(node, f"--hand-over-to={taker.tcp_address}")

    assert (code, err) == (0, ""), out
    node.stop()
    shutil.rmtree(node.folder)
    found = take(taker, 18)
    assert bodies(found) == sorted(set(sent) - {one.body for one in done[:2]})
    assert {one.id[:3] for one in found} == {done[0].id[:3]}
    assert next(one for one in found if one.id == done[2].id).attempts == 2
    assert bodies(take(taker, 20, name="other")) == sorted(sent)
    # Messages that waited for a first channel wait for it at the taker.
    make(taker, "new", topic="backlog")
    assert bodies(take(taker, 2, topic="backlog", name="new")) == sorted(waiting)
    for name in ("c", "other"):
        assert bodies(take(taker, 1, name=name)) == put_off
    assert time.monotonic() > due
    # The copy is removed when nothing of it is owed any more.
    wait_until(lambda: not list(taker.folder.glob("carried/*/*/")), "the copy is removed", seconds=20)


def test_consumers_and_publishers_of_a_node_that_was_handed_over_go_elsewhere(cluster):
    lookupd = cluster.nsqlookupd()
    taker = nsqd(cluster, lookupds=[lookupd])
    node = nsqd(cluster, f"--keepers={taker.tcp_address}", lookupds=[lookupd])
    make(node, "c")
    sent = publish(node, b"a", b"b")
    wire = Wire(("127.0.0.1", node.tcp_port))
    wire.subscribe("t", "c", 1)
    (held,) = wire.messages(1)
    wait_until(lambda: len(lookupd.get("/nodes")["producers"]) == 2, "both are registered")

    # The drain waits for a connected consumer that takes nothing until half of its time is over.
    draining = command(
        "nsqd.drain", f"--http-address={node.http_address}", "--poll-interval=1s", "--timeout=24s"
    )
    wait_until(lambda: node.get("/drain")["draining"], "it drains")
    assert node.request("POST", "/pub?topic=t", b"x")[0] == 503
    wire.send(b"RDY 0\n", b"FIN " + held.id + b"\n")
    assert ended(draining)[0] == 0

    assert node.get("/drain")["hand_over"]["state"] == "handed over"
    for change in (
        "/channel/create?topic=t&channel=n",
        "/message/finish?topic=t&channel=c&all=true",
        f"/channel/commit?topic=t&channel=c&sequence={node.get('/log/bounds?topic=t')['end']}",
    ):
        assert node.request("POST", change) == (503, b'{"message":"HANDED_OVER"}')
    wire.close()
    late = Wire(("127.0.0.1", node.tcp_port))
    assert late.refusal(b"SUB t c\n") == b"E_SUB_FAILED SUB failed handed over"
    late.close()
    assert node.request("POST", "/drain?cancel=true") == (409, b'{"message":"HANDED_OVER"}')
    assert bodies(take(taker, 1)) == [one for one in sent if one != held.body]


def test_a_node_that_was_handed_over_does_not_serve_it_again_and_is_as_good_as_new(cluster):
    taker, node = nsqd(cluster), nsqd(cluster)
    make(node, "c")
    sent = publish(node, b"a", b"b")
    assert drain(node, f"--hand-over-to={taker.tcp_address}")[0] == 0
    identity = json.loads((node.folder / "handed-over.json").read_text())["identity"]

    node.kill()
    node.start()

    assert stats(node).get("depth", 0) == 0
    assert not (node.folder / "handed-over.json").exists()
    new = publish(node, b"c")
    assert bodies(take(node, 1)) == new
    node.restart()
    assert stats(node)["depth"] == 0
    # The node is handed over again, under its new identity, and the taker hands on the messages of both.
    more = publish(node, b"d")
    assert drain(node, f"--hand-over-to={taker.tcp_address}")[0] == 0
    third = nsqd(cluster)
    waits(taker, 3)
    code, out, err = drain(taker, f"--hand-over-to={third.tcp_address}")
    assert (code, err) == (0, ""), out
    for one in (node, taker):
        one.stop()
        shutil.rmtree(one.folder)
    assert bodies(take(third, 3)) == sorted(sent + more)
    assert identity in {one.name for one in third.folder.glob("carried/*")}


def test_a_taker_that_is_killed_has_it_for_good_all_the_same(cluster):
    taker, node = nsqd(cluster), nsqd(cluster)
    make(node, "c")
    sent = publish(node, b"a", b"b", b"c")
    assert drain(node, f"--hand-over-to={taker.tcp_address}")[0] == 0

    taker.kill()
    taker.start()

    assert bodies(take(taker, 3)) == sent
    # The home is refused if it comes back from a backup of its folder.
    (node.folder / "handed-over.json").unlink()
    node.kill()
    node.flags.append(f"--keepers={taker.tcp_address}")
    node.start()
    wait_until(
        lambda: "were handed over to this nsqd, which has them for good" in node.logs(), "it is refused", 20
    )


def test_a_taker_that_is_back_before_the_time_is_up_is_asked_again(cluster):
    taker, node = nsqd(cluster), nsqd(cluster)
    make(node, "c")
    sent = publish(node, b"a", b"b", b"c")
    taker.kill()

    draining = command(
        "nsqd.drain", f"--http-address={node.http_address}", f"--hand-over-to={taker.tcp_address}"
    )
    wait_until(
        lambda: node.get("/drain").get("hand_over", {}).get("state") == "failed",
        "it was given up",
        seconds=30,
    )
    assert node.get("/drain")["hand_over"]["refused"] is False
    taker.start()

    code, out, err = ended(draining)
    assert (code, err) == (0, "")
    assert "not handed over, trying again: " in out
    assert bodies(take(taker, 3)) == sent


def test_why_nobody_takes_it_is_one_sentence_and_the_node_goes_on(cluster):
    node = nsqd(cluster)
    make(node, "c")
    sent = publish(node, b"a", b"b")
    away = f"127.0.0.1:{free_port()}"
    selfish = nsqd(cluster, "--keep-for-others=false")
    same = cluster.nsqd(next(flag for flag in node.flags if flag.startswith("--node-id")))
    full = nsqd(cluster, "--disk-watermark=99%")
    busy = nsqd(cluster)
    busy.post("/drain")

    for taker, sentence in (
        (selfish.tcp_address, "no copies are kept here: --keep-for-others=false"),
        (same.tcp_address, "is that of the keeper, too: each nsqd needs its own --node-id"),
        (node.tcp_address, "a node does not keep its own logs"),
        (full.tcp_address, "the disk of the keeper is nearly full"),
        (busy.tcp_address, "the keeper is draining"),
        (away, "connection refused"),
    ):
        result = drain(node, f"--hand-over-to={taker}", "--poll-interval=100ms", "--timeout=15s")
        refused(result, f"2 messages remain: 2 of t/c, which has no consumer; not handed over: {taker}: ")
        assert sentence in result[2]
        # A taker that cannot be reached is tried again; a taker that refuses is not asked twice.
        assert ("trying again" in result[1]) is (taker == away)
        if taker != away:
            assert node.get("/drain")["hand_over"]["refused"] is True

    node.post("/drain?cancel=true")
    assert bodies(take(node, 2)) == sent
    assert "Traceback" not in node.logs()


def test_a_data_path_without_a_process_is_handed_over_and_to_repeat_that_changes_nothing(cluster):
    taker, node = nsqd(cluster), nsqd(cluster)
    make(node, "c")
    sent = publish(node, *(b"%d" % number for number in range(30)))
    refused(hand_over(node.folder, taker.tcp_address), "possibly in use by another instance")
    node.kill()
    refused(hand_over(node.folder, f"127.0.0.1:{free_port()}"), "not handed over: 127.0.0.1:")

    code, out, err = hand_over(node.folder, f"127.0.0.1:{free_port()}", taker.tcp_address)

    assert (code, err) == (0, "")
    assert f"is handed over to {taker.tcp_address}: 30 messages, " in out
    again = hand_over(node.folder, taker.tcp_address)
    assert again[0] == 0
    assert again[1] == f"{node.folder} is handed over to {taker.tcp_address}\n"
    shutil.rmtree(node.folder)
    assert bodies(take(taker, 30)) == sorted(sent)


def test_a_node_of_the_same_number_takes_an_orphaned_data_path(cluster):
    node = nsqd(cluster)
    make(node, "c")
    sent = publish(node, b"a", b"b")
    node.kill()
    taker = cluster.nsqd(next(flag for flag in node.flags if flag.startswith("--node-id")), LATER)
    make(taker, "c")
    mine = publish(taker, b"mine")

    assert hand_over(node.folder, taker.tcp_address)[0] == 0

    assert bodies(take(taker, 3)) == sorted(sent + mine)


def test_another_keeper_lets_go_of_what_was_handed_over_to_a_taker_without_copies_of_its_own(cluster):
    taker, other = nsqd(cluster), nsqd(cluster)
    keepers = [f"127.0.0.1:{one.tcp_port}" for one in (taker, other)]
    node = nsqd(cluster, *(f"--keepers={one}" for one in keepers), "--replicas=2")
    first = min(node.get("/carried")["kept_by"], key=lambda one: one["appointment"])
    if first["address"] != keepers[0]:
        # The taker is to be the keeper that ranks below the other.
        taker, other, keepers = other, taker, keepers[::-1]
    make(node, "c")
    sent = publish(node, *(b"%d" % number for number in range(50)))
    wait_until(
        lambda: [one["topics"] for one in other.get("/carried")["keeps"]] == [["t"]],
        "it has a copy",
        seconds=20,
    )

    assert drain(node, f"--hand-over-to={keepers[0]}")[0] == 0
    node.stop()
    shutil.rmtree(node.folder)

    # The taker wants no copies, so the other keeper does not wait for any.
    wait_until(lambda: not other.get("/carried")["keeps"], "the other has let go of its copy", seconds=90)
    assert bodies(take(taker, len(sent))) == sorted(sent)


def test_another_keeper_lets_go_of_a_data_path_without_a_process_that_was_handed_over(cluster):
    taker, other = nsqd(cluster), nsqd(cluster)
    node = nsqd(cluster, *(f"--keepers=127.0.0.1:{one.tcp_port}" for one in (taker, other)), "--replicas=2")
    make(node, "c")
    sent = publish(node, *(b"%d" % number for number in range(50)))
    for one in (taker, other):
        wait_until(lambda one=one: one.get("/carried")["keeps"][0]["topics"] == ["t"], "it has a copy")
    node.kill()

    code, _, err = hand_over(node.folder, f"127.0.0.1:{taker.tcp_port}")

    assert code == 0
    assert f"127.0.0.1:{other.tcp_port} may have an older copy" in err
    wait_until(lambda: not other.get("/carried")["keeps"], "the other has let go of its copy", seconds=90)
    assert bodies(take(taker, len(sent))) == sorted(sent)


def test_from_three_nodes_to_one_nothing_is_left_behind(cluster):
    lookupd = cluster.nsqlookupd()
    nodes = [nsqd(cluster, "--replicas=1", lookupds=[lookupd]) for _ in range(3)]
    name_each_other(nodes)
    wait_until(lambda: len(lookupd.get("/nodes")["producers"]) == 3, "all are registered")
    sent = []
    for number, node in enumerate(nodes):
        make(node, "c", "d")
        wait_until(lambda node=node: node.get("/carried")["kept_by"], "it has a keeper", seconds=20)
        sent += publish(node, *(b"%d-%d" % (number, one) for one in range(40)))

    for node in (nodes[2], nodes[1]):
        code, out, err = drain(node, "--poll-interval=1s")
        assert (code, err) == (0, ""), out
        node.stop()
        shutil.rmtree(node.folder)

    (last, *_) = nodes
    for name in ("c", "d"):
        assert bodies(take(last, 120, name=name)) == sorted(sent)


def test_a_node_that_only_nsqlookupd_names_takes_nothing_over(cluster):
    lookupd = cluster.nsqlookupd()
    stranger, node = nsqd(cluster), nsqd(cluster)
    wait_until(lambda: len(lookupd.get("/nodes")["producers"]) == 2, "both are registered")
    make(node, "c")
    sent = publish(node, b"a", b"b")

    result = drain(node, "--poll-interval=100ms", "--timeout=20s")

    refused(
        result,
        "2 messages remain: 2 of t/c, which has no consumer; not handed over: no other nsqd is named that"
        " could take what is left: --hand-over-to, or --keepers of nsqd",
    )
    assert stranger.get("/carried")["keeps"] == []
    node.post("/drain?cancel=true")
    assert bodies(take(node, 2)) == sent
