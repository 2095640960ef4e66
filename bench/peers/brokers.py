"""The compared brokers, each with the flags for a promise, and that promise.

``apt-get install nats-server redis-server rabbitmq-server`` installs all that Debian has; brokers that are
not found are left out.
"""

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.peers.amqp import Amqp
from bench.peers.jetstream import JetStream
from bench.peers.nsq import Nsq
from bench.peers.process import Command, Commands
from bench.peers.speech import Speech
from bench.peers.streams import Streams
from bench.server import free_address

# The worst event that an answered publish survives.
NEITHER, KILL, POWER = "neither", "kill -9", "power cut"
# Not Debian's own command, because it changes the user and needs the service's folders.
RABBIT: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
# Nodes connect to each other only on this address.
LOOPBACK: Final = "-kernel inet_dist_use_interface {127,0,0,1}"


@dataclass(frozen=True)
class Broker:
    name: str
    promise: str
    # How the broker keeps the promise, or where it falls short.
    by: str
    speech: Speech
    commands: Commands


def nsqd(program: Sequence[str], flags: Sequence[str], folder: Path, port: int) -> list[Command]:
    places = ["--tcp-address", f"127.0.0.1:{port}", "--http-address", f"127.0.0.1:{port + 1}"]
    return [Command([*program, *places, "--data-path", str(folder), *flags])]


def nats(folder: Path, port: int) -> list[Command]:
    config = folder / "nats.conf"
    store = f'jetstream {{ store_dir: "{folder}", max_mem: 1G, max_file: 50G }}'
    config.write_text(f"listen: 127.0.0.1:{port}\n{store}\n")
    return [Command(["nats-server", "-c", str(config)])]


def redis(fsync: str, folder: Path, port: int) -> list[Command]:
    flags = {
        "bind": "127.0.0.1",
        "port": port,
        "dir": folder,
        "save": "",
        "appendonly": "yes",
        "appendfsync": fsync,
        # Rewriting the file is switched off, because a run is too short to spread its cost fairly.
        "auto-aof-rewrite-percentage": 0,
    }
    return [
        Command(
            ["redis-server", *(word for key, value in flags.items() for word in (f"--{key}", str(value)))]
        )
    ]


def rabbit(folder: Path, port: int) -> list[Command]:
    # The port mapper is started here in the foreground; started by RabbitMQ it would stay as a daemon.
    mapper = free_address()[1]
    environment = {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_address()[1]),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-start_epmd false {LOOPBACK}",
    }
    (folder / "plugins").write_text("[].\n")
    return [
        Command(["epmd", "-port", str(mapper), "-address", "127.0.0.1"], environment),
        Command([str(RABBIT)], environment),
    ]


def ours(name: str, program: Sequence[str]) -> list[Broker]:
    flush = ("--sync-every", "1")
    return [
        Broker(f"ours, {name}", KILL, "written before the OK", Nsq(), partial(nsqd, program, ())),
        Broker(f"ours, {name}, sync", POWER, "synced before the OK", Nsq(), partial(nsqd, program, flush)),
    ]


def original(program: str) -> list[Broker]:
    def one(name: str, promise: str, by: str, *flags: str) -> Broker:
        return Broker(
            f"original nsqd, {name}", promise, by, Nsq(), partial(nsqd, shlex.split(program), flags)
        )

    return [
        one("memory", NEITHER, "in memory up to 10 million", "--mem-queue-size=10000000"),
        one("files", KILL, "written before the OK", "--mem-queue-size=0"),
    ]


def packaged() -> list[Broker]:
    """Return the brokers that are installed."""
    found = []
    if shutil.which("nats-server"):
        found.append(Broker("NATS JetStream, file", KILL, "written before the answer", JetStream(), nats))
    if shutil.which("redis-server"):
        for fsync, promise, by, lanes in (
            ("everysec", KILL, "written before the answer", 4),
            ("always", POWER, "synced before the answer", 16),
        ):
            found.append(
                Broker(f"Redis Streams, {fsync}", promise, by, Streams(lanes), partial(redis, fsync))
            )
    if RABBIT.exists() and shutil.which("epmd"):
        for kind in ("classic", "quorum"):
            broker = Broker(f"RabbitMQ, {kind}", POWER, "synced before the confirm", Amqp(kind), rabbit)
            found.append(broker)
    return found


def default_ours() -> list[str]:
    return [f"this tree={Path(sys.executable).parent / 'nsqd'}"]
