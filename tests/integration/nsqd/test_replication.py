"""Replication of real nsqd: acknowledgements, failover, membership, deleted topics, decommission."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.nsqd_http import metrics
from tests.support.nursery import ROOT
from tests.support.processes import Cluster
from tests.support.replicated import (
    FAILOVER_S,
    caught_up,
    consume,
    copies,
    empty_path,
    identity,
    in_sync,
    node,
    nodes,
    publish,
    replica_of,
    secret_file,
    shown,
)
from tests.support.waiting import wait_until
from tests.support.wire import Wire, pub

OTHER_SECRET = "another secret, which no member of the cluster knows"
NUMBERS = [b"%d" % number for number in range(100)]
# A takeover is due at the failover timeout, and may take a second more, or several on a busy machine.
TAKEOVER_S = FAILOVER_S + 1
BUSY_S = 5


@pytest.fixture
def cluster(tmp_path, request):
    """A cluster of the test; no node of it may log a traceback."""
    made = Cluster(tmp_path / "cluster")
    yield made
    made.close()
    for one in made.daemons:
        logs = one._log_path.read_text(errors="replace") if one._log_path.exists() else ""
        request.node.add_report_section("teardown", one.folder.name, logs[-6000:])
        assert "Traceback" not in logs, logs


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three nodes that run for all tests of the module; a test that stops one starts it again."""
    cluster = Cluster(tmp_path_factory.mktemp("replication") / "three")
    yield nodes(cluster, 3)
    cluster.close()


def suspended(one):
    """Suspend a process; the caller continues it."""
    os.kill(one.pid, signal.SIGSTOP)


def resumed(one):
    os.kill(one.pid, signal.SIGCONT)


def took(one, body=b"x", topic="t"):
    """Publish once; return the answer and how long it took."""
    with Wire(("127.0.0.1", one.tcp_port)) as wire:
        began = time.monotonic()
        answer = wire.ask_frame(pub(topic, body)).data
        return answer, time.monotonic() - began


# --- acknowledgements ---


def test_ok_waits_for_replica_at_most_ack_timeout(cluster):
    owner, other = nodes(cluster, 2, "--replica-ack-timeout=1s")
    publish(owner, "t", [b"first"])
    suspended(other)
    try:
        answer, seconds = took(owner)
    finally:
        resumed(other)

    assert answer == b"OK"
    assert seconds >= 0.9


def test_ok_waits_for_second_replica_while_first_is_away(cluster):
    owner, *others = nodes(cluster, 3, "--replica-ack-timeout=2s", replicas=2)
    publish(owner, "t", [b"first"])
    others[0].kill()
    wait_until(lambda: len(in_sync(owner)) == 1, "one replica is left")
    quick = took(owner)[1]
    suspended(others[1])
    try:
        answer, seconds = took(owner)
    finally:
        resumed(others[1])

    assert answer == b"OK"
    assert quick < 1.9 <= seconds


def test_publishers_without_enough_replicas_are_refused_with_sentence(cluster):
    owner, other = nodes(cluster, 2, "--replicas-missing=refuse")
    publish(owner, "t", [b"first"])
    other.kill()
    wait_until(lambda: took(owner)[0] != b"OK", "the replica is missed")

    assert took(owner)[0] == b"E_PUB_FAILED PUB failed 0 of 1 replicas are in sync"
    assert owner.request("POST", "/pub?topic=t", b"x")[0] == 503
    for change in ("channel/create", "channel/pause", "channel/empty", "channel/delete", "topic/pause"):
        assert owner.request("POST", f"/{change}?topic=t&channel=ch")[0] == 200, change
    assert owner.request("GET", "/ready") == (503, b"NOK - 0 of 1 replicas are in sync")
    assert metrics(owner)["nsqd_under_replicated_topics"] == 1
    other.start()
    wait_until(lambda: took(owner)[0] == b"OK", "the replica is back")


def test_ready_counts_topics_with_too_few_replicas(cluster):
    owner, other = nodes(cluster, 2)
    publish(owner, "t", [b"first"])
    assert owner.request("GET", "/ready") == (200, b"OK")
    other.kill()
    wait_until(lambda: owner.request("GET", "/ready")[1] != b"OK", "the replica is missed")

    assert owner.request("GET", "/ready") == (200, b"OK - 1 topic has fewer replicas than wanted")


def test_ready_says_whether_replicas_are_missing_for_publishes(cluster, tmp_path):
    lookupd = cluster.nsqlookupd()
    secret = tmp_path / "cluster-secret"
    secret.write_text("s" * 64)
    flags = (f"--cluster-secret-file={secret}", "--replicas=1", "--replicas-missing=refuse")
    first = cluster.nsqd("--node-id=1", *flags, lookupds=[lookupd])
    named = "/lookup/producers?topic=t"

    assert first.request("GET", "/ready") == (503, b"NOK - 0 of 1 replicas are in sync")
    wait_until(lambda: lookupd.get("/nodes")["producers"], "it is registered")
    wait_until(lambda: not lookupd.get(named)["producers"], "producers are not sent to it")
    # Each is the replica of the other, though neither takes publishes yet.
    second = cluster.nsqd("--node-id=2", *flags, lookupds=[lookupd])
    for one in (first, second):
        wait_until(lambda one=one: one.request("GET", "/ready")[0] == 200, "it is ready")
        assert one.request("POST", "/pub?topic=t", b"x") == (200, b"OK")


# --- failover ---


def test_replica_takes_over_after_failover_timeout(cluster):
    # Its own nodes: messages that another test left would keep the promoted copy.
    owner, *others = nodes(cluster, 3)
    replica = replica_of(owner, others)
    owner.create("failover", "ch")
    publish(owner, "failover", NUMBERS)
    assert sorted(consume(owner, "failover", count=40)) == sorted(NUMBERS[:40])
    caught_up(owner)
    time.sleep(1.5)  # finished messages are in a checkpoint within a second
    log = identity(owner)
    before = metrics(replica)["nsqd_failovers_total"]
    owner.kill()
    killed = time.monotonic()

    found = consume(replica, "failover", count=60)

    assert sorted(found) == sorted(NUMBERS[40:])
    assert time.monotonic() - killed <= TAKEOVER_S + BUSY_S
    assert metrics(replica)["nsqd_failovers_total"] == before + 1
    (copy,) = copies(replica, log)
    assert copy["state"] in ("promoted", "state_only")
    owner.start()
    assert consume(owner, "failover", quiet=4) == []
    assert consume(replica, "failover") == []
    wait_until(lambda: copies(replica, log) == [] or copies(replica, log)[0]["state"] == "replica",
               "the promoted copy is dropped")  # fmt: skip


def test_finished_emptied_and_deleted_messages_do_not_come_back(three):
    owner = three[1]
    replica = replica_of(owner, [three[0], three[2]])
    for topic in ("finished", "emptied", "deleted", "channel_deleted"):
        owner.create(topic, "ch")
        publish(owner, topic, NUMBERS[:20])
    caught_up(owner)
    log = identity(owner)
    owner.kill()
    for topic in ("finished", "emptied", "deleted", "channel_deleted"):
        wait_until(lambda topic=topic: unfinished(replica, topic) == 20, f"{topic} is taken over", 10)

    assert len(consume(replica, "finished", count=20)) == 20
    replica.post("/channel/empty?topic=emptied&channel=ch")
    replica.post("/topic/delete?topic=deleted")
    replica.post("/channel/delete?topic=channel_deleted&channel=ch")
    owner.start()
    in_sync(owner)

    wait_until(lambda: not copies(replica, log) or copies(replica, log)[0]["pending"] == 0, "nothing is left")
    time.sleep(2.5)  # the owner asks the holders for so long
    for topic in ("finished", "emptied", "deleted", "channel_deleted"):
        assert consume(owner, topic, quiet=0.5) == [], topic
        assert consume(replica, topic, quiet=0.5) == [], topic


def unfinished(one, topic, channel="ch"):
    """The depth of a channel, 0 where there is none."""
    found = one.get(f"/stats?format=json&topic={topic}")["topics"]
    channels = found[0]["channels"] if found else []
    return sum(each["depth"] for each in channels if each["channel_name"] == channel)


def test_clean_stop_sends_the_last_checkpoint(three):
    owner = three[2]
    replica = replica_of(owner, three[:2])
    owner.create("stopped", "ch")
    bodies = [b"%d" % number for number in range(400)]
    publish(owner, "stopped", bodies)
    done = consume(owner, "stopped", count=300)

    owner.stop()
    found = consume(replica, "stopped", count=100, seconds=10)
    found += consume(replica, "stopped", quiet=0.5)
    owner.start()

    assert len(done) == 300
    assert sorted(found) == sorted(set(bodies) - set(done))


# --- membership ---


def test_wrong_secret_is_refused_with_sentence_at_both_ends(cluster):
    member = node(cluster, 1, secret_file(cluster.folder)).start()
    stranger = node(
        cluster,
        2,
        secret_file(cluster.folder, OTHER_SECRET, name="other"),
        "--replicas=1",
        f"--replica={member.tcp_address}",
    ).start()

    refused = 'nsqd_replication_refused_total{code="not_a_member"}'
    wait_until(lambda: metrics(member)[refused] >= 1, "the stranger is refused")
    sentence = "the connector is not a member: its proof fits no secret"
    problem = problem_of(stranger)
    assert sentence in problem
    assert sentence in stranger.logs()
    assert sentence in member.logs()
    publish(stranger, "t", [b"alone"])
    assert shown(member)["copies"] == []


@pytest.mark.parametrize("flags", [["--replicas=1"], ["--replicas=1", "--replica=127.0.0.1:1"]])
def test_replicas_without_secret_are_refused_at_start(cluster, flags):
    one = node(cluster, 1, *flags).spawn()

    assert one.wait() == 1
    assert "--replicas=1 needs --cluster-secret-file: only members are replicas" in one.logs()


def test_node_without_secret_accepts_nothing(cluster):
    plain = node(cluster, 1).start()
    member = node(
        cluster, 2, secret_file(cluster.folder), "--replicas=1", f"--replica={plain.tcp_address}"
    ).start()

    problem = problem_of(member)
    assert "no cluster secret is set here" in problem
    assert shown(plain)["copies"] == []


def problem_of(one):
    """Wait until GET /replication says why the only replica is not connected; return that."""
    found = wait_until(
        lambda: [
            each["problem"]
            for each in shown(one)["replicas"]
            if each["problem"] not in ("", "not connected yet", "connection refused")
        ],
        "the problem is shown",
    )
    return found[0]


def resident(one):
    return int(Path(f"/proc/{one.pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize(
    "sent",
    [b"\xff" * 4096, b"GET / HTTP/1.0\r\n\r\n", b"\x40\0\0\0\5" + bytes(63), b"\xff\xff\xff\x7f\1"],
    ids=["noise", "http", "a frame of a stream", "a large frame"],
)
def test_garbage_behind_magic_is_refused(three, sent):
    one = three[0]
    before = resident(one)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", one.tcp_port), timeout=5) as stranger:
            stranger.sendall(b"  R2" + sent)
            stranger.settimeout(5)
            answer = b""
            while piece := stranger.recv(4096):
                answer += piece
        assert answer[4:6] == b"\3\x09"  # Refuse, bad frame

    assert resident(one) - before < 8 << 20
    assert one.is_running()


def test_silent_strangers_are_disconnected_and_block_no_peer(three):
    one = three[0]
    before = resident(one)
    strangers = [socket.create_connection(("127.0.0.1", one.tcp_port), timeout=15) for _ in range(100)]
    for number, stranger in enumerate(strangers):
        stranger.sendall(b"  R2" + b"\x90\0\0\0\1" * (number % 2))
    try:
        assert took(one, topic="strangers")[0] == b"OK"
        assert resident(one) - before < 16 << 20
        for stranger in strangers:
            while stranger.recv(4096):
                pass
    finally:
        for stranger in strangers:
            stranger.close()


def test_rogue_registration_at_nsqlookupd_receives_nothing(cluster):
    """A1: a node that only registers, without the secret, gets no message and finishes none."""
    lookupd = cluster.nsqlookupd()
    rogue = node(
        cluster,
        9,
        secret_file(cluster.folder, OTHER_SECRET, name="other"),
        f"--lookupd-tcp-address={lookupd.tcp_address}",
        "--topology-zone=elsewhere",
    ).start()
    owner = node(
        cluster,
        1,
        secret_file(cluster.folder),
        f"--lookupd-tcp-address={lookupd.tcp_address}",
        "--replicas=1",
        "--topology-zone=here",
    ).start()
    publish(owner, "t", NUMBERS)
    wait_until(
        lambda: sum(value for name, value in metrics(rogue).items() if "replication_refused" in name) >= 1,
        "the rogue was tried",
    )

    assert shown(rogue)["copies"] == []
    member = node(
        cluster, 2, secret_file(cluster.folder), f"--lookupd-tcp-address={lookupd.tcp_address}"
    ).start()
    (replica,) = in_sync(owner, seconds=30)
    assert replica["address"] == member.tcp_address


def test_secret_is_rotated_while_cluster_runs(cluster):
    owner, other = nodes(cluster, 2)
    path = cluster.folder / "secret"
    old = path.read_text().strip()
    for content in (f"{old}\n{OTHER_SECRET}\n", f"{OTHER_SECRET}\n{old}\n", f"{OTHER_SECRET}\n"):
        path.write_text(content)
        other.restart()
        in_sync(owner)
        in_sync(other)
        publish(owner, "t", [b"x"])
    assert metrics(owner)['nsqd_replication_refused_total{code="not_a_member"}'] == 0


# --- TLS ---


def tls_nodes(cluster, authority, *flags):
    return nodes(
        cluster,
        2,
        "--replication-tls",
        f"--tls-root-ca-file={authority.file}",
        *authority.flags,
        *flags,
    )


def test_replication_over_tls(cluster, tmp_path):
    owner, other = tls_nodes(cluster, Authority(tmp_path / "ca"))
    publish(owner, "t", NUMBERS)
    owner.post("/channel/create?topic=t&channel=ch")
    caught_up(owner)
    owner.kill()

    assert len(consume(other, "t", count=100, seconds=10)) == 100


def test_connection_without_tls_is_refused_where_tls_is_required(cluster, tmp_path):
    authority = Authority(tmp_path / "ca")
    secret = secret_file(cluster.folder)
    required = node(
        cluster, 1, secret, "--replication-tls", f"--tls-root-ca-file={authority.file}", *authority.flags
    ).start()
    plain = node(cluster, 2, secret, "--replicas=1", f"--replica={required.tcp_address}").start()

    problem = problem_of(plain)
    assert "TLS is required here: --replication-tls" in problem


def test_proof_does_not_pass_through_proxy_with_another_certificate(cluster, tmp_path):
    """The proof is bound to the certificate: TLS that ends between the nodes is no membership."""
    from tests.support.tls_proxy import TlsProxy

    authority = Authority(tmp_path / "ca")
    secret = secret_file(cluster.folder)
    tls = ["--replication-tls", f"--tls-root-ca-file={authority.file}"]
    member = node(cluster, 1, secret, *tls, *authority.flags).start()
    with TlsProxy(member.tcp_port, authority, tmp_path) as proxy:
        connector = node(cluster, 2, secret, *tls, "--replicas=1", f"--replica={proxy.address}").start()
        problem = problem_of(connector)
        assert "or TLS ends between the two" in problem
        assert shown(member)["copies"] == []


# --- addresses and data paths ---


def test_replica_is_found_under_another_address(cluster):
    """A4, A9: a node is its identity; its address says only where to look."""
    lookupd = cluster.nsqlookupd()
    flags = [secret_file(cluster.folder), f"--lookupd-tcp-address={lookupd.tcp_address}"]
    flags += ["--replicas=1", f"--failover-timeout={FAILOVER_S}s"]
    owner, other = (node(cluster, number, *flags).start() for number in (1, 2))
    in_sync(owner)
    owner.create("t", "ch")
    publish(owner, "t", NUMBERS)
    caught_up(owner)
    name = identity(other)
    other.kill()
    other.ports = dict.fromkeys(other.ports, 0)
    other.start()

    (replica,) = wait_until(
        lambda: [one for one in in_sync(owner) if one["address"] == other.tcp_address],
        "it is found at its new address",
    )
    assert replica["identity"] == name
    time.sleep(TAKEOVER_S)
    assert consume(other, "t", quiet=1) == []
    assert len(consume(owner, "t", count=100)) == 100


def test_copied_data_path_is_another_node(cluster):
    """A13: the original and its copy agree on who delivers."""
    owner, other = nodes(cluster, 2)
    owner.create("t", "ch")
    publish(owner, "t", NUMBERS)
    caught_up(owner)
    name = identity(owner)
    owner.stop()
    secret = secret_file(cluster.folder)
    copy = node(cluster, 3, secret, f"--replica={other.tcp_address}", f"--failover-timeout={FAILOVER_S}s")
    shutil.copytree(owner.folder, copy.folder, dirs_exist_ok=True)
    owner.start()
    in_sync(owner)
    copy.start()

    assert identity(copy) != name
    assert len(consume(owner, "t", count=100)) == 100
    assert consume(copy, "t", quiet=4) == []


# --- deleted topics ---


def test_deleted_topic_is_removed_from_replica_that_was_away(cluster):
    owner, other = nodes(cluster, 2)
    for topic in ("kept", "deleted", "deleted_later"):
        owner.post(f"/topic/create?topic={topic}")
        publish(owner, topic, NUMBERS[:5])
    caught_up(owner)
    log = identity(owner)
    owner.post("/topic/delete?topic=deleted")
    wait_until(lambda: copies(other, log)[0]["topics"] in (0, 2), "it is deleted at the replica")
    wait_until(lambda: topics_in_copies(other) == {"kept", "deleted_later"}, "its folder is gone")
    other.stop()
    owner.post("/topic/delete?topic=deleted_later")
    other.start()

    in_sync(owner)
    wait_until(lambda: topics_in_copies(other) == {"kept"}, "the other folder is gone")


def topics_in_copies(one):
    return {path.name.removesuffix(".topic") for path in one.folder.glob("replicas/*/*/*.topic")}


# --- shown ---


def test_statistics_and_metrics_show_replicas(three):
    owner = three[0]
    publish(owner, "shown", [b"x"])
    caught_up(owner)
    found = metrics(owner)
    label = f'{{replica="{in_sync(owner)[0]["address"]}"}}'

    assert found["nsqd_replica_connected" + label] == 1
    assert found["nsqd_replica_stalled" + label] == 0
    assert found["nsqd_replica_lag_bytes" + label] >= 0
    assert found["nsqd_replica_lag_seconds" + label] >= 0
    assert found["nsqd_replica_in_sync_topics" + label] >= 1
    assert found["nsqd_replica_caught_up_topics" + label] >= 1
    for name in (
        *("nsqd_under_replicated_topics", "nsqd_primaries_connected", "nsqd_owned_topics"),
        *("nsqd_owned_pending_messages", "nsqd_owned_unreadable_topics", "nsqd_failovers_total"),
        *("nsqd_yielded_messages", 'nsqd_replication_refused_total{code="not_a_member"}'),
    ):
        assert name in found
    stats = owner.get("/stats?format=json")
    assert stats["replicas"] == shown(owner)["replicas"]
    assert stats["under_replicated"] == 0
    (topic,) = [one for one in stats["topics"] if one["topic_name"] == "shown"]
    assert (topic["replicas_in_sync"], topic["replicas_wanted"]) == (1, 1)
    assert set(shown(owner)) == {
        *("identity", "incarnation", "epoch", "replicas_wanted", "fully_replicated", "waits_for"),
        *("replicas", "copies"),
    }


# --- decommission and drain ---


def decommission(one, *flags, seconds=60):
    command = [sys.executable, "-m", "nsqd.decommission", f"--http-address={one.http_address}", *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)


def test_decommission_moves_everything_to_replica(cluster):
    owner, *others = nodes(cluster, 3)
    for topic in ("t", "u"):
        owner.create(topic, "ch")
        publish(owner, topic, NUMBERS)

    ended = decommission(owner)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert took(owner)[0] != b"OK"
    owner.stop()
    found = [(topic, body) for one in others for topic in ("t", "u") for body in consume(one, topic)]
    assert sorted(found) == sorted((topic, body) for topic in ("t", "u") for body in NUMBERS)
    owner.start()
    assert consume(owner, "t", quiet=4) == []


def test_decommission_to_named_node(cluster):
    owner, *others = nodes(cluster, 3)
    target = next(one for one in others if one is not replica_of(owner, others))
    owner.create("t", "ch")
    publish(owner, "t", NUMBERS)

    ended = decommission(owner, f"--to={target.tcp_address}")

    assert (ended.returncode, ended.stderr) == (0, "")
    owner.stop()
    assert len(consume(target, "t", count=100)) == 100


def test_decommission_without_target_says_what_it_waits_for(cluster):
    one = node(cluster, 1, secret_file(cluster.folder)).start()
    one.post("/channel/create?topic=t&channel=ch") if one.post("/topic/create?topic=t") else None
    publish(one, "t", NUMBERS)

    ended = decommission(one, "--timeout=2s")

    assert ended.returncode == 1
    assert re.fullmatch(
        r"nsqd-decommission: the time is up: 100 messages remain, it waits for .+\n", ended.stderr
    )
    assert one.get("/decommission")["decommissioning"]
    one.post("/decommission?cancel=true")
    publish(one, "t", [b"again"])


def test_decommission_needs_secret(cluster):
    one = node(cluster, 1).start()

    ended = decommission(one)

    assert ended.returncode == 1
    assert "NO_CLUSTER_SECRET" in ended.stderr


def test_drain_never_gives_messages_away(cluster):
    owner, other = nodes(cluster, 2)
    owner.create("t", "ch")
    publish(owner, "t", NUMBERS)
    command = [sys.executable, "-m", "nsqd.drain", f"--http-address={owner.http_address}", "--timeout=3s"]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)

    assert ended.returncode == 1
    assert unfinished(owner, "t") == 100
    assert [one["state"] for one in copies(other, identity(owner))] == ["replica"]


# --- on a stopped data path ---


def data_tool(*arguments, seconds=60):
    command = [sys.executable, "-m", "nsqd.data", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)


def test_orphaned_volume_is_decommissioned(cluster):
    secret = secret_file(cluster.folder)
    orphan = node(cluster, 1, secret).start()
    member = node(cluster, 2, secret, f"--failover-timeout={FAILOVER_S}s").start()
    orphan.create("t", "ch")
    publish(orphan, "t", NUMBERS)
    orphan.kill()
    command = ["decommission", f"--data-path={orphan.folder}", secret, f"--replica={member.tcp_address}"]

    ended = data_tool(*command, "--fewer-copies")

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith(f"{orphan.folder} is decommissioned\n")
    assert len(consume(member, "t", count=100)) == 100
    assert data_tool(*command, "--fewer-copies").returncode == 0
    orphan.start()
    assert consume(orphan, "t", quiet=3) == []


def test_rescue_of_data_path_that_is_in_use_is_refused(three):
    one = three[0]
    ended = data_tool("decommission", f"--data-path={one.folder}", "--cluster-secret-file=x", "--replica=a:1")

    assert ended.returncode == 2
    assert re.search("nsqd-data: .*(in use|runs|locked)", ended.stderr)


def test_forgotten_node_is_not_waited_for(cluster):
    owner, other = nodes(cluster, 2)
    publish(owner, "t", [b"x"])
    caught_up(owner)
    name = identity(other)
    other.stop()
    owner.stop()

    ended = data_tool("forget-node", f"--data-path={owner.folder}", name)
    again = data_tool("forget-node", f"--data-path={owner.folder}", name)

    assert ended.returncode == 0
    assert ended.stdout.startswith("forgotten: the own log\n")
    assert (again.returncode, "knows the node" in again.stderr) == (2, True)
    owner.start()
    assert consume(owner, "t", count=1, seconds=1.5) == [b"x"]


def test_new_identity_makes_another_node_of_snapshot(cluster):
    one = node(cluster, 1, secret_file(cluster.folder)).start()
    publish(one, "t", NUMBERS)
    one.post("/channel/create?topic=t&channel=ch")
    before = identity(one)
    one.stop()

    ended = data_tool("new-identity", f"--data-path={one.folder}")

    assert (ended.returncode, ended.stdout) == (0, "the next start has a new identity\n")
    one.start()
    assert identity(one) != before
    assert len(consume(one, "t", count=100)) == 100


def test_lost_disk_is_replaced_by_empty_one(cluster):
    owner, other = nodes(cluster, 2)
    owner.create("t", "ch")
    publish(owner, "t", NUMBERS)
    caught_up(owner)
    owner.kill()
    empty_path(owner)
    owner.start()

    assert len(consume(other, "t", count=100)) == 100
    publish(owner, "t", [b"new"])
    assert consume(owner, "t", count=1) == [b"new"]
