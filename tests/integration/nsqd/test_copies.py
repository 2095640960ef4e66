"""Copies of a node's logs on another, between real processes: killed, stopped, cut off, refused."""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import threading
import time

import pytest

from nsqd.log.disk import Disk
from nsqd.log.happened import Mark
from nsqd.replication.frames import Hello, StillHere, Welcome
from nsqd.replication.framing import MAGIC, FrameReader, encode
from nsqd.storage.topic_store import TopicStore
from tests.support.auth_server import AuthServer, granted
from tests.support.certificates import Authority
from tests.support.proxy import FaultyProxy
from tests.support.waiting import wait_until
from tests.support.wire import Wire, mpub, pub

numbers = itertools.count(10)


def keeper(cluster, *flags):
    return cluster.nsqd(f"--node-id={next(numbers)}", *flags)


def home(cluster, address, *flags, timeout="15s"):
    """A node with a keeper.

    After *timeout* an OK may come without a copy. Unless the test is about that, it is long, so that a busy
    machine does not cause it.
    """
    return cluster.nsqd(
        f"--node-id={next(numbers)}",
        f"--keepers={address}",
        "--replicas=1",
        f"--keeper-timeout={timeout}",
        *flags,
    )


def kept_by(node):
    (one,) = node.get("/carried")["kept_by"]
    return one


def linked(node, topics=1):
    wait_until(lambda: kept_by(node)["linked_topics"] >= topics, "the keeper is linked")


def connected(node):
    wait_until(lambda: kept_by(node)["connected"], "the keeper is connected")


def copies(node, topic):
    """The folders of the copies of a topic, the latest appointment last."""
    return sorted(node.folder.glob(f"carried/*/*/{topic}.topic"), key=lambda path: int(path.parent.name))


def bodies(folder):
    """All messages that can be read from a folder that nobody writes to."""
    store = TopicStore(Disk(), folder, 1 << 30, lambda _text: None)
    store.recover(Mark())
    found = b""
    for start, end in store.extents():
        at = start
        while at < end:
            block = store.read(at)
            found += getattr(block, "data", b"")
            at = block.next if hasattr(block, "next") else block.end
    store.close()
    return found


class Load:
    """Publishes numbered messages until it is told to stop; keeps those that were answered."""

    def __init__(self, node, topic):
        self.node, self.topic = node, topic
        self.answered = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        number = 0
        while not self._stop.is_set():
            with (
                contextlib.suppress(OSError, AssertionError, EOFError),
                Wire(("127.0.0.1", self.node.tcp_port)) as wire,
            ):
                while not self._stop.is_set():
                    number += 1
                    body = b"<%08d>" % number
                    if wire.ask(pub(self.topic, body)) == b"OK":
                        self.answered.append(body)
            self._stop.wait(0.05)


def missing(load, content):
    return [body for body in load.answered if body not in content]


def test_what_was_answered_is_in_the_copy_when_the_home_is_killed(cluster):
    kept = keeper(cluster)
    node = home(cluster, kept.tcp_address, "--without-keeper=refuse")
    connected(node)
    with Load(node, "t") as load:
        wait_until(lambda: len(load.answered) > 300, "messages are answered")
        node.kill()

    (copy,) = copies(kept, "t")
    wait_until(lambda: not kept.get("/carried")["keeps"][0]["connected"], "the keeper sees it gone")
    assert missing(load, b"".join(path.read_bytes() for path in copy.glob("*.log"))) == []
    kept.kill()
    content = bodies(copy)
    assert missing(load, content) == []
    assert content.startswith(bodies(node.folder / "t.topic")[: len(content)])


def test_publishes_go_on_while_the_keeper_is_killed_and_the_copy_is_whole_again_after(cluster):
    kept = keeper(cluster)
    node = home(cluster, kept.tcp_address)
    connected(node)
    with Load(node, "t") as load:
        wait_until(lambda: len(load.answered) > 100, "messages are answered")
        kept.kill()
        before = len(load.answered)
        wait_until(lambda: len(load.answered) > before + 50, "and go on without a keeper")
        kept.start()
        linked(node)
        before = len(load.answered)
        wait_until(lambda: len(load.answered) > before + 50, "and with it")
    wait_until(lambda: kept_by(node)["filled_topics"] == 1, "the copy is whole")
    node.kill()
    kept.stop()

    (copy,) = copies(kept, "t")
    assert missing(load, bodies(copy)) == []


def test_publishes_are_refused_while_no_keeper_is_there_if_that_is_wanted(cluster):
    kept = keeper(cluster)
    node = home(cluster, kept.tcp_address, "--without-keeper=refuse")
    connected(node)
    node.post("/pub?topic=t", b"one")
    kept.kill()
    wait_until(lambda: not kept_by(node)["connected"], "the keeper is gone")

    with Wire(("127.0.0.1", node.tcp_port)) as wire:
        assert wire.refusal(pub("t", b"two")) == b"E_PUB_FAILED PUB failed 0 of 1 keepers are linked"
    assert node.request("POST", "/pub?topic=t", b"three")[0] == 503

    kept.start()
    linked(node)
    node.post("/pub?topic=t", b"four")
    node.stop()
    assert b"two" not in bodies(node.folder / "t.topic")


def test_without_named_keepers_nothing_is_copied_and_a_warning_says_what_to_set(cluster):
    lookupd = cluster.nsqlookupd()
    stranger = keeper(cluster)
    wait_until(lambda: lookupd.get("/nodes")["producers"], "it is registered")
    node = cluster.nsqd(f"--node-id={next(numbers)}", "--replicas=1")
    node.post("/pub?topic=t", b"one")

    wait_until(lambda: "0 of 1 keepers are known: set --keepers to the addresses" in node.logs(), "it warns")
    assert node.get("/carried")["kept_by"] == []
    assert b"nsqd_under_copied_topics 1" in node.request("GET", "/metrics")[1]
    assert node.request("GET", "/ready") == (200, b"OK - 1 topics have fewer copies than wanted")
    assert stranger.get("/carried")["keeps"] == []


def test_operators_requests_are_stored_while_publishes_are_refused(cluster):
    kept = keeper(cluster)
    node = home(cluster, kept.tcp_address, "--without-keeper=refuse")
    connected(node)
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    linked(node)
    node.post("/mpub?topic=t", b"one\ntwo")
    first = node.get("/log/bounds?topic=t")["first"]
    kept.kill()
    wait_until(lambda: not kept_by(node)["connected"], "the keeper is gone")
    refused = []
    stop = threading.Event()

    def publish():
        while not stop.is_set():
            refused.append(node.request("POST", "/pub?topic=t", b"three")[0])

    publishers = [threading.Thread(target=publish) for _ in range(6)]
    for publisher in publishers:
        publisher.start()
    requests = (
        "/channel/pause?topic=t&channel=c",
        "/message/requeue?topic=t&channel=c&all=true&defer=60000",
        f"/channel/commit?topic=t&channel=c&sequence={first}",
    )
    try:
        answers = {path: [node.request("POST", path)[0] for _ in range(15)] for path in requests}
    finally:
        stop.set()
        for publisher in publishers:
            publisher.join()

    assert set(refused) == {503}
    assert answers == dict.fromkeys(requests, [200] * 15)
    node.kill()
    node.start()
    (channel,) = node.get("/stats?format=json")["topics"][0]["channels"]
    assert (channel["paused"], channel["deferred_count"]) == (True, 2)


def test_publishers_do_not_hang_on_a_keeper_that_is_stopped(cluster):
    kept = keeper(cluster)
    node = home(cluster, kept.tcp_address, timeout="1s")
    connected(node)
    node.post("/pub?topic=t", b"one")
    os.kill(kept.pid, signal.SIGSTOP)
    try:
        node.post("/pub?topic=t", b"two")
        assert kept_by(node)["stalled"]
        node.post("/pub?topic=t", b"three")
    finally:
        os.kill(kept.pid, signal.SIGCONT)
    wait_until(lambda: not kept_by(node)["stalled"], "the keeper has caught up")
    node.post("/pub?topic=t", b"four")

    (copy,) = copies(kept, "t")
    wait_until(
        lambda: all(
            body in (copy / "00000001.log").read_bytes() for body in (b"one", b"two", b"three", b"four")
        ),
        "the copy has all of them",
    )


def test_a_line_that_is_cut_anywhere_costs_nothing(cluster):
    kept = keeper(cluster)
    with FaultyProxy(("127.0.0.1", kept.tcp_port), seed=5) as proxy:
        node = home(cluster, f"127.0.0.1:{proxy.address[1]}", "--max-bytes-per-file=20000", timeout="1s")
        with Load(node, "t") as load:
            wait_until(lambda: proxy.faults > 5 and len(load.answered) > 300, "the line has many faults", 40)
        node.kill()
        node.flags = [flag for flag in node.flags if not flag.startswith("--keepers")]
    node.flags.append(f"--keepers={kept.tcp_address}")
    node.start()
    wait_until(lambda: kept_by(node)["filled_topics"] == 1, "the copy is whole")
    node.kill()
    kept.stop()

    assert missing(load, bodies(copies(kept, "t")[-1])) == []


def test_what_is_strict_is_durable_at_both(cluster):
    kept = keeper(cluster)
    node = home(cluster, kept.tcp_address, "--sync-every=1")
    connected(node)

    with Wire(("127.0.0.1", node.tcp_port)) as wire:
        for number in range(20):
            wire.publish("t", b"strict %d" % number)

    (copy,) = copies(kept, "t")
    assert b"strict 19" in (copy / "00000001.log").read_bytes()


def test_large_batches_and_many_topics_are_copied(cluster):
    kept = keeper(cluster)
    node = home(cluster, kept.tcp_address)
    connected(node)
    with Wire(("127.0.0.1", node.tcp_port)) as wire:
        wire.send(mpub("large", *[bytes([number]) * 900_000 for number in range(5)]))
        wire.ok()
        for number in range(50):
            wire.publish(f"t{number}", b"x" * (number + 1))

    for name in ("large", "t49"):
        (copy,) = copies(kept, name)
        assert (copy / "00000001.log").read_bytes() == (
            node.folder / f"{name}.topic" / "00000001.log"
        ).read_bytes()


def test_a_deleted_topic_is_deleted_at_the_keeper_and_an_ephemeral_one_is_never_there(cluster):
    kept = keeper(cluster)
    node = home(cluster, kept.tcp_address)
    connected(node)
    node.post("/pub?topic=t", b"one")
    node.post("/pub?topic=e%23ephemeral", b"one")

    node.post("/topic/delete?topic=t")

    wait_until(lambda: not copies(kept, "t"), "the copy is gone")
    assert list(kept.folder.glob("carried/*/*/*.topic")) == []


def test_a_topic_that_was_deleted_while_its_keeper_was_away_is_forgotten_by_nobody(cluster):
    kept = keeper(cluster)
    node = home(cluster, kept.tcp_address)
    connected(node)
    node.post("/pub?topic=t", b"one")
    kept.kill()
    node.post("/topic/delete?topic=t")
    noted = node.folder / "deleted-topics.json"
    wait_until(lambda: noted.exists() and '"t"' in noted.read_text(), "it is noted")
    node.kill()
    assert copies(kept, "t")

    kept.start()
    node.start()

    wait_until(lambda: not copies(kept, "t"), "the copy is gone")
    wait_until(lambda: '"t"' not in noted.read_text(), "and told")


def test_a_deletion_that_cannot_be_noted_is_logged_once_and_noted_later(cluster):
    kept = keeper(cluster)
    node = home(cluster, kept.tcp_address)
    connected(node)
    node.post("/pub?topic=t", b"one")
    kept.kill()
    noted = node.folder / "deleted-topics.json"
    # Nothing can be written where a folder is.
    (node.folder / f"{noted.name}.tmp").mkdir()
    node.post("/topic/delete?topic=t")
    wait_until(lambda: "failed to note a deleted topic" in node.logs(), "it cannot be noted")
    failed = time.monotonic()
    # Each is tried several times a second.
    wait_until(lambda: time.monotonic() - failed > 0.5, "it is tried again")
    assert node.logs().count("failed to note a deleted topic") == 1

    (node.folder / f"{noted.name}.tmp").rmdir()

    wait_until(lambda: noted.exists() and '"t"' in noted.read_text(), "it is noted")


def test_a_copy_stays_when_somebody_removes_the_topic_s_files_at_home(cluster):
    kept = keeper(cluster)
    node = home(cluster, kept.tcp_address)
    connected(node)
    node.post("/pub?topic=t", b"of the first copy")
    node.post("/channel/create?topic=t&channel=c")
    shutil.rmtree(node.folder / "t.topic")

    def moved():
        # nsqd still has the removed file open; its next checkpoint notices that the file is missing.
        node.request("POST", "/pub?topic=t", b"more")
        return kept_by(node)["appointment"] == 2

    wait_until(moved, "another copy is begun", 20)
    linked(node)

    first, second = copies(kept, "t")
    assert b"of the first copy" in (first / "00000001.log").read_bytes()
    assert second.parent.name == "2"


def test_that_there_is_no_copy_is_to_be_seen(cluster):
    kept = keeper(cluster)
    node = home(cluster, kept.tcp_address)
    connected(node)
    node.post("/pub?topic=t", b"one")
    assert node.request("GET", "/ready")[1] == b"OK"
    assert node.get("/stats?format=json")["under_copied"] == 0
    kept.kill()
    wait_until(lambda: not kept_by(node)["connected"], "the keeper is gone")

    assert node.request("GET", "/ready") == (200, b"OK - 1 topics have fewer copies than wanted")
    assert node.get("/stats?format=json")["under_copied"] == 1
    figures = node.request("GET", "/metrics")[1].decode()
    assert "nsqd_under_copied_topics 1" in figures
    assert f'nsqd_keeper_connected{{keeper="{kept.tcp_address}"}} 0' in figures


def refused(node, sentence):
    wait_until(lambda: sentence in kept_by(node)["problem"], sentence)
    node.post("/pub?topic=t", b"is answered all the same")


def test_a_keeper_with_the_same_node_id_refuses(cluster):
    kept = cluster.nsqd("--node-id=7")
    node = cluster.nsqd("--node-id=7", f"--keepers={kept.tcp_address}", "--replicas=1")

    refused(node, "node id 7 is that of the keeper, too")


def test_a_node_that_keeps_nothing_refuses(cluster):
    kept = keeper(cluster, "--keep-for-others=false")

    refused(home(cluster, kept.tcp_address), "no copies are kept here: --keep-for-others=false")


def test_what_a_home_sends_before_it_is_admitted_stays_with_it(cluster):
    more = encode(StillHere()) * 100_000
    with AuthServer(held={"good"}) as auth:
        kept = keeper(cluster, f"--auth-http-address={auth.address}", "--http-client-request-timeout=2m")
        with socket.create_connection(("127.0.0.1", kept.tcp_port), timeout=2) as peer:
            peer.sendall(MAGIC + encode(Hello(b"h" * 16, 1, 1, "home:4150", b"good")))
            wait_until(lambda: auth.asked, "the auth server is asked")
            with pytest.raises(TimeoutError):
                for _ in range((64 << 20) // len(more)):
                    peer.sendall(more)
            auth.release()
            welcome = next(iter(FrameReader().feed(peer.recv(1 << 16))))
    assert isinstance(welcome, Welcome)


def test_something_else_than_a_keeper_is_told_of(cluster):
    lookupd = cluster.nsqlookupd()
    node = cluster.nsqd(f"--keepers={lookupd.tcp_address}", "--replicas=1", lookupds=[])

    wait_until(
        lambda: "clos" in kept_by(node)["problem"] or "no keeper" in kept_by(node)["problem"], "a problem"
    )


def test_a_home_with_a_wrong_secret_is_refused_and_with_a_changed_one_is_kept_without_a_restart(
    cluster, tmp_path
):
    with AuthServer(granted(topic="others"), by_secret={"good": granted()}) as auth:
        kept = keeper(cluster, f"--auth-http-address={auth.address}")
        secret = tmp_path / "secret"
        secret.write_text("bad\n")
        node = home(cluster, kept.tcp_address, f"--keeper-secret-file={secret}")
        wait_until(lambda: "refuses" in kept_by(node)["problem"], "it is refused")
        secret.write_text("good\n")
        connected(node)


def test_the_stream_is_encrypted_where_that_is_wanted(cluster, tmp_path):
    authority = Authority(tmp_path)
    kept = keeper(cluster, *authority.flags, "--tls-required=true")
    node = home(cluster, kept.tcp_address)
    refused(node, "TLS is required here")

    node.stop()
    node.flags += ["--keeper-tls", f"--tls-root-ca-file={authority.file}"]
    node.start()
    connected(node)
    node.post("/pub?topic=t2", b"one")

    assert copies(kept, "t2")


def test_a_renewed_certificate_is_shown_to_keepers_without_a_restart(cluster, tmp_path):
    authority = Authority(tmp_path / "theirs")
    kept = keeper(
        cluster,
        *authority.flags,
        f"--tls-root-ca-file={authority.file}",
        "--tls-client-auth-policy=require-verify",
    )
    other = Authority(tmp_path / "other")
    mine = [f"--tls-cert={tmp_path}/mine.pem", f"--tls-key={tmp_path}/mine.key"]
    other.client_files("mine", tmp_path)
    node = home(cluster, kept.tcp_address, "--keeper-tls", f"--tls-root-ca-file={authority.file}", *mine)
    wait_until(lambda: kept_by(node)["problem"] not in {"", "not connected yet"}, "the keeper refuses it")

    authority.client_files("mine", tmp_path)

    connected(node)


def test_a_keeper_whose_certificate_is_of_another_authority_is_not_believed(cluster, tmp_path):
    theirs, ours = Authority(tmp_path / "theirs"), Authority(tmp_path / "ours")
    kept = keeper(cluster, *theirs.flags)
    node = home(cluster, kept.tcp_address, "--keeper-tls", f"--tls-root-ca-file={ours.file}")

    refused(node, "certificate")

    node.stop()
    node.flags[-1] = f"--tls-root-ca-file={theirs.file}"
    node.start()
    connected(node)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--replicas=2", "--keepers=a:1"], "--replicas=2 needs as many --keepers, not 1"),
        (["--carry-after=0s"], "--carry-after must be longer than 0"),
        (["--carry-ask=0s"], "--carry-ask must be longer than 0"),
        (["--replicas=9"], "--replicas must be between 0 and 5"),
        (["--without-keeper=wait"], "--without-keeper must be accept or refuse"),
        (["--fill-rate=fast"], "--fill-rate is no size"),
        (["--keeper-timeout=0s"], "--keeper-timeout must be longer than 0"),
        (["--keeper-secret-file=/nowhere"], "failed to read --keeper-secret-file"),
    ],
)
def test_a_flag_that_cannot_be_meant_ends_the_start_with_a_sentence(cluster, flags, sentence):
    node = cluster.daemon("nsqd", [*flags, f"--data-path={cluster.folder}"])

    assert node.spawn().wait() != 0
    assert sentence in node.logs()
