"""/ready says whether lookups are complete: after a start, and while a release is rolled out."""

import threading

from bench.ports import free_port
from tests.support.processes import Cluster, Daemon
from tests.support.waiting import wait_until

POLL_SECONDS = 0.05


def lookupd(cluster: Cluster, http_ports: list[int], own: int, *flags: str) -> Daemon:
    """An nsqlookupd, not started, that knows all addresses, also its own, like the pods of a StatefulSet."""
    others = [f"--lookupd-http-address=127.0.0.1:{port}" for port in http_ports]
    daemon = cluster.daemon("nsqlookupd", ["--broadcast-address=127.0.0.1", *others, *flags])
    daemon.ports["http"] = http_ports[own]
    return daemon


class Watcher(threading.Thread):
    """Asks every ready nsqlookupd for the producers of the topic, twenty times a second."""

    def __init__(self, lookupds: list[Daemon], topic: str, producers: int) -> None:
        super().__init__()
        self.lookupds = lookupds
        self.topic = topic
        self.producers = producers
        self.answers = 0
        self.wrong: list[object] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(POLL_SECONDS):
            for daemon in self.lookupds:
                pid = daemon.pid
                if daemon.is_ready():
                    self.look(daemon, pid)

    def look(self, daemon: Daemon, pid: int) -> None:
        try:
            answers = [
                daemon.request("GET", f"/lookup?topic={self.topic}"),
                daemon.request("GET", "/nodes"),
            ]
        except OSError:
            return  # it was stopped between the requests
        if daemon.pid != pid:
            return  # a new process has answered, which was not asked whether it is ready
        self.answers += len(answers)
        for status, body in answers:
            if status != 200 or body.count(b'"broadcast_address"') != self.producers:
                self.wrong.append((status, body))


def test_rolling_restart_gives_no_wrong_answer_from_ready_nsqlookupd(cluster):
    ports = [free_port(), free_port()]
    lookupds = [lookupd(cluster, ports, own, "--reconnect-interval=5s").start() for own in range(2)]
    nsqds = [cluster.nsqd(lookupds=lookupds) for _ in range(3)]
    for nsqd in nsqds:
        for number in range(50):
            nsqd.post(f"/topic/create?topic=t{number}")
    last = "/lookup?topic=t49"
    wait_until(lambda: all(daemon.is_ready() for daemon in lookupds), "both are ready")
    wait_until(
        lambda: all(b'"t49"' in daemon.request("GET", "/topics")[1] for daemon in lookupds),
        "the topics are registered",
    )
    wait_until(lambda: all(len(daemon.get(last)["producers"]) == 3 for daemon in lookupds), "by every nsqd")
    watcher = Watcher(lookupds, "t49", producers=3)
    watcher.start()
    try:
        for daemon in lookupds * 2:
            daemon.restart()
            wait_until(daemon.is_ready, "it is ready again")
            # Wait for two rounds of answers, however slow the machine is.
            enough = watcher.answers + 4
            wait_until(lambda enough=enough: watcher.answers >= enough, "it was asked")
    finally:
        watcher.stopped.set()
        watcher.join()

    assert watcher.wrong == []


def test_single_nsqlookupd_waits_for_nsqds_to_return(cluster):
    daemon = lookupd(cluster, [free_port()], 0, "--reconnect-interval=1h").start()

    status, body = daemon.request("GET", "/ready")
    assert (status, body) == (503, b"NOK - waiting for every nsqd to come back")
    assert b"nsqlookupd_ready 0.0" in daemon.request("GET", "/metrics")[1]
    assert daemon.get("/topics") == {"topics": []}  # requests are answered although it is not ready
    daemon.stop()
    daemon.flags.append("--reconnect-interval=0s")
    daemon.start()
    wait_until(daemon.is_ready, "it is ready")
    # It answers that it is ready a moment before its next look logs it.
    wait_until(lambda: "s are over, the time nsqds need to come back" in daemon.logs(), "it says why")


def test_nsqd_that_does_not_come_back_is_named(cluster):
    ports = [free_port(), free_port()]
    first = lookupd(cluster, ports, 0, "--reconnect-interval=0s").start()
    wait_until(first.is_ready, "the first is ready")
    nsqd = cluster.nsqd(lookupds=[first])  # it does not know of the second nsqlookupd
    wait_until(lambda: len(first.get("/nodes")["producers"]) == 1, "it is registered")
    second = lookupd(cluster, ports, 1, "--ready-timeout=1h").start()

    sentence = f"NOK - waiting for 1 of 1 nsqd: 127.0.0.1:{nsqd.tcp_port}".encode()
    wait_until(lambda: second.request("GET", "/ready") == (503, sentence), "it is named")


def test_added_nsqlookupd_is_not_ready_before_nsqds_know_it(cluster):
    ports = [free_port(), free_port()]
    first = lookupd(cluster, ports, 0, "--reconnect-interval=0s").start()
    wait_until(first.is_ready, "the first is ready")
    nsqds = [cluster.nsqd(lookupds=[first]) for _ in range(3)]
    wait_until(lambda: len(first.get("/nodes")["producers"]) == 3, "they are registered")
    second = lookupd(cluster, ports, 1, "--ready-timeout=0s", "--reconnect-interval=0s").start()

    wait_until(lambda: b"waiting for 3 of 3 nsqd" in second.request("GET", "/ready")[1], "it waits")
    for waiting, nsqd in zip((2, 1), nsqds, strict=False):
        assert not second.is_ready()
        nsqd.stop()
        nsqd.flags.append(f"--lookupd-tcp-address={second.tcp_address}")
        nsqd.start()
        wait_until(lambda nodes=3 - waiting: len(second.get("/nodes")["producers"]) == nodes, "it is known")
    wait_until(second.is_ready, "only one is missing")
