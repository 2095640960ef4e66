"""Processes are killed, or a disk fills, in the middle of a hand-over, which is repeated or goes on."""

import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nsqd.replication.frames import HandOver
from nsqd.replication.framing import encode
from tests.support.gate import Gate
from tests.support.mounts import small_disk
from tests.support.waiting import wait_until
from tests.support.wire import Wire

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).parents[2]
COUNT = 400
FROZEN_S = 3
numbers = itertools.count(300)
# The head of the frame with which a home tells the taker that it has written its note.
SAYS_SO = encode(HandOver(1))[:5]


def nsqd(cluster, *flags):
    # The taker must not wait for --carry-after before it gives out handed-over messages.
    return cluster.nsqd(f"--node-id={next(numbers)}", *(flags or ("--carry-after=60s",)))


def publish(node):
    """Publish COUNT messages, which one channel is owed; return their bodies."""
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    sent = [b"%d " % number + b"." * 300 for number in range(COUNT)]
    node.post("/mpub?topic=t", b"\n".join(sent))
    return sorted(sent)


def drain(node, taker):
    """Run nsqd-drain to its end; return its exit code and what it wrote to stderr."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "nsqd.drain", f"--http-address={node.http_address}"),
            *(f"--hand-over-to={taker}", "--poll-interval=200ms", "--timeout=60s"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    return done.returncode, done.stderr


def channel(node):
    found = node.get("/stats?format=json&topic=t")["topics"] or []
    return next((one for topic in found for one in topic["channels"] or []), {})


def state(node):
    return node.get("/drain").get("hand_over", {}).get("state", "")


def problem(node):
    return node.get("/drain").get("hand_over", {}).get("problem", "")


def take(node, count):
    wait_until(lambda: channel(node).get("depth") == count, f"{count} messages wait", seconds=30)
    wire = Wire(("127.0.0.1", node.tcp_port))
    wire.subscribe("t", "c", count + 10)
    messages = wire.messages(count)
    assert not wire.has_more(0.1)
    wire.close()
    return sorted(message.body for message in messages)


def gate_for(moment, port):
    """A gate in front of the taker that closes at that moment; at "stopping" it stays open."""
    if moment == "noted":
        return Gate(port, before=SAYS_SO)
    return Gate(port, most=20_000 if moment == "filling" else None)


@pytest.mark.parametrize("who", ["home", "taker", "both"])
@pytest.mark.parametrize("moment", ["filling", "stopping", "noted"])
def test_what_is_handed_over_is_served_by_one_whoever_is_killed(cluster, moment, who):
    taker, node = nsqd(cluster), nsqd(cluster)
    sent = publish(node)
    wire = Wire(("127.0.0.1", node.tcp_port))
    if moment == "stopping":
        # The hand-over waits for a message in flight.
        wire.subscribe("t", "c", 1)
        wire.message()
        wire.send(b"RDY 0\n")
    with gate_for(moment, taker.tcp_port) as gate:
        node.post(f"/drain?hand_over=true&taker={gate.address}")
        wait_until(lambda: state(node) == moment, f"it is {moment}", seconds=20)
        if moment != "stopping":
            assert gate.holds.wait(20)
        killed = {"home": [node], "taker": [taker], "both": [taker, node]}[who]
        noted = node.folder / "handed-over.json"
        assert noted.exists() == (moment == "noted")

        for one in killed:
            one.kill()
        gate.open()
        wire.close()
        for one in killed:
            one.start()

        if moment == "noted" and who != "taker":
            # At its start the home told the taker, and it owes none of the messages any more.
            assert not channel(node).get("depth")
        assert drain(node, gate.address) == (0, "")
        node.stop()
        if noted.exists():
            assert json.loads(noted.read_text())["confirmed"]
        shutil.rmtree(node.folder)
        assert take(taker, COUNT) == sent


def test_a_node_whose_taker_is_killed_behind_the_note_takes_nothing_more_and_tells_it_later(
    cluster,
):
    taker, node = nsqd(cluster), nsqd(cluster)
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.post("/mpub?topic=t", b"a\nb")
    with gate_for("noted", taker.tcp_port) as gate:
        node.post(f"/drain?hand_over=true&taker={gate.address}")
        assert gate.holds.wait(20)
        taker.kill()

        # The next start would remove messages published now, so the drain cannot be cancelled.
        assert node.request("POST", "/drain?cancel=true") == (409, b'{"message":"HANDED_OVER"}')
        assert node.request("POST", "/pub?topic=t", b"x")[0] == 503
        gate.open()
        taker.start()

        wait_until(lambda: state(node) == "handed over", "the taker knows", seconds=30)
    assert take(taker, 2) == [b"a", b"b"]


@pytest.mark.parametrize("moment", ["filling", "noted"])
@pytest.mark.parametrize("fault", ["line is cut", "taker is frozen"])
def test_a_hand_over_goes_on_when_the_fault_in_the_middle_of_it_is_over(cluster, moment, fault):
    taker, node = nsqd(cluster), nsqd(cluster)
    sent = publish(node)
    with gate_for(moment, taker.tcp_port) as gate:
        node.post(f"/drain?hand_over=true&taker={gate.address}")
        assert gate.holds.wait(20)
        if fault == "line is cut":
            gate.cut()
            gate.open()
        else:
            os.kill(taker.pid, signal.SIGSTOP)
            gate.open()
            # The node shows no sign of the fault to wait for, so sleep for longer than --keeper-timeout.
            time.sleep(FROZEN_S)
            os.kill(taker.pid, signal.SIGCONT)

        assert drain(node, gate.address) == (0, "")
    node.stop()
    shutil.rmtree(node.folder)
    assert take(taker, COUNT) == sent


@pytest.mark.parametrize("moment", ["filling", "noted"])
def test_a_command_that_is_killed_in_the_middle_is_repeated(cluster, moment):
    taker, node = nsqd(cluster), nsqd(cluster)
    sent = publish(node)
    node.kill()
    with gate_for(moment, taker.tcp_port) as gate:
        command = [sys.executable, "-m", "nsqd.data", "hand-over", f"--data-path={node.folder}"]
        command.append(f"--to={gate.address}")
        first = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        assert gate.holds.wait(20)
        first.kill()
        first.wait()
        assert (node.folder / "handed-over.json").exists() == (moment == "noted")
        gate.open()

        assert subprocess.run(command, cwd=ROOT, check=False, timeout=60).returncode == 0
    shutil.rmtree(node.folder)
    assert take(taker, COUNT) == sent


@pytest.mark.parametrize(
    ("moment", "who"), [("filling", "keeper"), ("filling", "taker"), ("noted", "keeper")]
)
def test_what_a_keeper_hands_on_of_a_lost_home_is_served_by_one_whoever_is_killed(cluster, moment, who):
    taker, keeper = nsqd(cluster), nsqd(cluster, "--carry-after=1s")
    home = nsqd(cluster, "--replicas=1", "--without-keeper=refuse", f"--keepers={keeper.tcp_address}")
    wait_until(lambda: home.request("POST", "/pub?topic=first", b"x")[0] == 200, "it has a copy", seconds=20)
    sent = publish(home)
    home.kill()
    shutil.rmtree(home.folder)
    wait_until(lambda: channel(keeper).get("depth") == COUNT, "the keeper gives it out", seconds=20)
    with gate_for(moment, taker.tcp_port) as gate:
        keeper.post(f"/drain?hand_over=true&taker={gate.address}")
        assert gate.holds.wait(20)
        killed = keeper if who == "keeper" else taker

        killed.kill()
        gate.open()
        killed.start()

        assert drain(keeper, gate.address) == (0, "")
    keeper.stop()
    shutil.rmtree(keeper.folder)
    assert take(taker, COUNT) == sent


def fill_up(folder):
    """Fill the disk; return the file whose removal makes room again."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(b"x" * 65_536)
            except OSError:
                return filler


@pytest.mark.parametrize("moment", ["filling", "noted"])
def test_a_taker_whose_disk_fills_says_so_and_has_all_when_there_is_room_again(cluster, tmp_path, moment):
    with small_disk(tmp_path / "small", 16) as small:
        flags = [f"--node-id={next(numbers)}", f"--data-path={small}", "--carry-after=60s"]
        taker = cluster.daemon("nsqd", [*flags, "--broadcast-address=127.0.0.1"]).start()
        node = nsqd(cluster)
        sent = publish(node)
        with gate_for(moment, taker.tcp_port) as gate:
            node.post(f"/drain?hand_over=true&taker={gate.address}")
            assert gate.holds.wait(20)

            filler = fill_up(small)
            gate.open()

            sentence = "the keeper refuses: the keeper's disk: no space left on device"
            wait_until(lambda: sentence in problem(node), "the taker has refused", seconds=20)
            if moment == "filling":
                assert state(node) == "failed"
                # No message was handed over, and the node may go on.
                node.post("/drain?cancel=true")
                assert channel(node)["depth"] == COUNT
                node.post("/pub?topic=t", b"goes on")
                sent = sorted([*sent, b"goes on"])
            else:
                assert state(node) == "noted"
            filler.unlink()

            # The taker checks its free space every ten seconds.
            wait_until(lambda: drain(node, gate.address) == (0, ""), "it is handed over", seconds=40)
        node.stop()
        shutil.rmtree(node.folder)
        assert take(taker, len(sent)) == sent
        taker.kill()


def test_another_taker_is_tried_when_the_disk_of_the_first_fills(cluster):
    lookupd = cluster.nsqlookupd()
    # Of two possible takers, the one in another zone is tried first. It comes when the keeper was chosen.
    full = nsqd(cluster, "--carry-after=60s", "--topology-zone=there")
    full.stop()
    taker = nsqd(cluster, "--carry-after=60s", "--topology-zone=here")
    keeper = nsqd(cluster, "--topology-zone=there")
    named = [f"--keepers={one.tcp_address}" for one in (keeper, full, taker)]
    node = nsqd(cluster, "--carry-after=60s", "--topology-zone=here", "--replicas=1", *named)
    wait_until(lambda: node.get("/carried")["kept_by"], "it has a keeper", seconds=20)
    keeper.kill()
    sent = publish(node)
    full.start()
    wait_until(lambda: len(lookupd.get("/nodes")["producers"]) == 3, "all others are registered")
    _, hard = resource.prlimit(full.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(full.pid, resource.RLIMIT_FSIZE, (50_000, hard))

    done = subprocess.run(
        [sys.executable, "-m", "nsqd.drain", f"--http-address={node.http_address}", "--poll-interval=200ms"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )

    assert (done.returncode, done.stderr) == (0, "")
    refusal = f"{full.tcp_address}: the keeper refuses: the keeper's disk: file too large"
    assert f"HAND-OVER: not to {full.tcp_address} - {refusal}" in node.logs()
    node.stop()
    shutil.rmtree(node.folder)
    assert take(taker, COUNT) == sent
