"""Real nsqd that are replicas of each other, and what tests do with them."""

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bench.ports import free_port
from nsqclient.wire.message import MessageRecord
from tests.support.processes import Cluster, Daemon
from tests.support.waiting import wait_until
from tests.support.wire import MESSAGE, Wire, fin

FAILOVER_S: Final = 2.0
SECRET: Final = "one secret of a cluster, known to all its members"
ALL: Final = 1 << 30
IN_SYNC: Final = frozenset(("in_sync", "caught_up"))


def secret_file(folder: Path, *secrets: str, name: str = "secret") -> str:
    """Write a secret file, by default with the usual secret; return the flag that names it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("\n".join(secrets or (SECRET,)) + "\n", encoding="ascii")
    path.chmod(0o600)
    return f"--cluster-secret-file={path}"


def node(cluster: Cluster, number: int, *flags: str, listeners: tuple[str, ...] = ("tcp", "http")) -> Daemon:
    """Return an nsqd that is not started yet; its ports are known."""
    made = cluster.daemon("nsqd", ["--broadcast-address=127.0.0.1"], listeners)
    made.ports = {kind: free_port() for kind in listeners}
    made.flags += [f"--data-path={made.folder}", f"--node-id={number}", *flags]
    return made


def nodes(
    cluster: Cluster, count: int, *flags: str, replicas: int = 1, failover: float = FAILOVER_S
) -> list[Daemon]:
    """Return running nsqd, each with the others as replicas, when they are in sync."""
    secret = secret_file(cluster.folder)
    found = [
        node(cluster, number, secret, f"--replicas={replicas}", f"--failover-timeout={failover}s", *flags)
        for number in range(1, count + 1)
    ]
    for one in found:
        one.flags += [f"--replica={other.tcp_address}" for other in found if other is not one]
    for one in found:
        one.start()
    for one in found:
        in_sync(one, min(replicas, count - 1))
    return found


def shown(one: Daemon) -> dict[str, Any]:
    """Return what GET /replication says."""
    found: dict[str, Any] = one.get("/replication")
    return found


def identity(one: Daemon) -> str:
    found: str = shown(one)["identity"]
    return found


def in_sync(one: Daemon, count: int = 1, seconds: float = 30) -> list[dict[str, Any]]:
    """Wait until so many replicas are in sync; return them."""
    return wait_until(
        lambda: (
            (found := [each for each in shown(one)["replicas"] if each["state"] in IN_SYNC])[count - 1 :]
            and found
        ),
        f"{count} replicas are in sync",
        seconds,
    )


def caught_up(one: Daemon, seconds: float = 30) -> None:
    """Wait until the node is fully replicated: everything is synced here and there."""
    # What is shown may be a second old.
    time.sleep(1.1)
    wait_until(
        lambda: (
            (found := shown(one))["fully_replicated"]
            and any(each["state"] == "caught_up" for each in found["replicas"])
        ),
        "it is fully replicated",
        seconds,
    )


def replica_of(one: Daemon, others: list[Daemon]) -> Daemon:
    """Return the best replica of a node."""
    address = in_sync(one)[0]["address"]
    return next(other for other in others if other.tcp_address == address)


def copies(one: Daemon, origin: str) -> list[dict[str, Any]]:
    """Return the copies of one log at a node."""
    return [each for each in shown(one)["copies"] if each["origin"] == origin]


def publish(one: Daemon, topic: str, bodies: list[bytes]) -> None:
    """Publish each body, and wait for its OK."""
    with Wire(("127.0.0.1", one.tcp_port)) as wire:
        wire.publish(topic, *bodies)


def consume(
    one: Daemon,
    topic: str,
    channel: str = "ch",
    *,
    count: int = ALL,
    quiet: float = 1.0,
    seconds: float = 20.0,
) -> list[bytes]:
    """Finish messages; return their bodies: *count*, or those until nothing came for *quiet* seconds."""
    bodies: list[bytes] = []
    until = time.monotonic() + seconds
    with Wire(("127.0.0.1", one.tcp_port)) as wire:
        wire.subscribe(topic, channel, ready=100)
        last = time.monotonic()
        while len(bodies) < count and (now := time.monotonic()) < until:
            if not wire.has_more(0.05):
                if count == ALL and now - last > quiet:
                    break
                continue
            kind, data = wire.frame()
            if kind == MESSAGE:
                message = MessageRecord.decode(data)
                bodies.append(message.body)
                wire.send(fin(message))
                last = time.monotonic()
        # Its answer comes after all messages were finished.
        wire.send(b"RDY 0\n", b"CLS\n")
        with suppress(EOFError, OSError):
            while wire.frame().data != b"CLOSE_WAIT":
                pass
    return bodies


def empty_path(one: Daemon) -> None:
    """Remove all that the node has stored, as a lost disk; its log stays."""
    for path in one.folder.iterdir():
        if path.suffix != ".log" or path.is_dir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
