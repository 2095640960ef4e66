"""`/decommission` between real processes: pending messages are delivered elsewhere before it is done."""

import subprocess
import sys

import pytest

from tests.support.waiting import wait_until
from tests.support.wire import Wire

SOON = "--failover-timeout=1s"


@pytest.mark.parametrize("count", [1, 200])
def test_decommission_right_after_publish_moves_its_messages(cluster, tmp_path, count):
    (tmp_path / "secret").write_text("s" * 64)
    secret = f"--cluster-secret-file={tmp_path / 'secret'}"
    replica = cluster.nsqd(secret, SOON, "--node-id=1")
    node = cluster.nsqd(secret, SOON, "--node-id=2", "--replicas=1", f"--replica={replica.tcp_address}")
    for one in (replica, node):
        one.create("orders", "ship")
    bodies = [b"message %d" % number for number in range(count)]
    node.post("/mpub?topic=orders", b"\n".join(bodies))

    # Neither a checkpoint nor the stream has the messages yet.
    node.post("/decommission")
    wait_until(lambda: node.get("/decommission")["done"], "the messages are moved", 30)
    node.stop()

    with Wire(("127.0.0.1", replica.tcp_port)) as wire:
        wire.subscribe("orders", "ship", count)
        received = [message.body for message in wire.messages(count)]
    assert sorted(received) == sorted(bodies)


@pytest.mark.parametrize("target_is", ["draining", "not started", "restarted while it drains"])
def test_transfer_waits_for_target_that_cannot_take_messages_yet(cluster, tmp_path, target_is):
    (tmp_path / "secret").write_text("s" * 64)
    secret = f"--cluster-secret-file={tmp_path / 'secret'}"
    node = cluster.nsqd(secret, SOON, "--node-id=1")
    target = cluster.nsqd(secret, SOON, "--node-id=2")
    node.create("orders", "ship")
    node.post("/mpub?topic=orders", b"\n".join(b"%d" % number for number in range(50)))
    if target_is == "not started":
        target.stop()
    else:
        target.post("/drain")
    command = [sys.executable, "-m", "nsqd.decommission", f"--http-address={node.http_address}"]
    command += [f"--to={target.tcp_address}", "--timeout=60s"]

    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as transfer:
        wait_until(lambda: node.get("/decommission")["waits_for"], "the transfer waits")
        if target_is == "draining":
            target.post("/drain?cancel=true")
        elif target_is == "not started":
            target.start()
        else:
            target.stop()
            target.start()
        _, problem = transfer.communicate()

    assert (transfer.returncode, problem) == (0, "")
    with Wire(("127.0.0.1", target.tcp_port)) as wire:
        wire.subscribe("orders", "ship", 50)
        assert len(wire.messages(50)) == 50
