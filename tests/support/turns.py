"""A turn over a real data path, with connections that have a wire in memory instead of a socket."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nsqclient.wire.frames import FrameParser
from nsqcore.process.logs import Log, LogLevel
from nsqd.engine.broker import Broker, Event
from nsqd.engine.limits import Limits
from nsqd.log.disk import Disk
from nsqd.log.ids import MessageIds
from nsqd.log.layout import APPEND_MAGIC, FILE_HEADER_BYTES
from nsqd.server.auth import AuthServers
from nsqd.server.checkpointer import Checkpointer
from nsqd.server.clock import now_ns
from nsqd.server.fsync import THREADS, Fsync
from nsqd.server.health import Health
from nsqd.server.replication.service import Replication
from nsqd.server.tcp import ClientConnection, Clients
from nsqd.server.write_batch import WriteBatch
from nsqd.storage.data_path import DataPath, StorageOptions
from tests.support.memory_transport import MemoryTransport
from tests.support.unreplicated import unreplicated


class Bench:
    """A turn over a real data path, with connections that keep the bytes that they would send."""

    def __init__(
        self,
        path: Path,
        disk: Disk | None = None,
        sync_every: int = 2500,
        replicas: Replication | None = None,
        **pace: float,
    ) -> None:
        """*replicas* is what publishers wait for; by default they wait for none."""
        log = Log("[test] ", LogLevel.FATAL)
        self.health = Health()
        self.data = DataPath(path, StorageOptions(), lambda _: None, disk or Disk())
        self.broker = Broker(MessageIds(1), Limits(), self.data.create_log)
        self.events: list[Event] = []
        self.on_event = self.events.append
        threads = ThreadPoolExecutor(THREADS + 1)
        self.fsync = Fsync(self.data, self.health, log, sync_every=sync_every, threads=threads, **pace)
        self.replication = unreplicated(self.broker, self.data, self.fsync, log)
        self.write_batch = WriteBatch(
            self.broker,
            self.data,
            self.health,
            log,
            self.fsync,
            replicas or self.replication,
            node="node",
            on_event=self._happened,
        )
        auth = AuthServers((), log, method="get", connect_timeout_s=1, request_timeout_s=1)
        self.clients = Clients(self.broker, self.write_batch, log, None, auth, self.replication.accept)

    def checkpoints(self) -> Checkpointer:
        """Return what writes the checkpoints of the topics."""
        log = Log("[test] ", LogLevel.FATAL)
        return Checkpointer(self.broker, self.data, self.health, log, self.replication.checkpointed)

    def _happened(self, event: Event) -> None:
        self.on_event(event)  # looked up at each event, because a test may replace the listener

    def connect(self) -> "Client":
        return Client(self)

    def appends(self, topic_name: str) -> int:
        """Return how many appends the only file of a topic has."""
        (segment,) = (self.data.path / f"{topic_name}.topic").glob("*.log")
        # Without the file header, whose checksum may contain the beginning of an append's magic.
        return segment.read_bytes()[FILE_HEADER_BYTES:].count(APPEND_MAGIC)

    async def rest(self) -> None:
        """Finish the turn and its fsyncs."""
        self.write_batch.request_turn()
        self.write_batch.run()
        await self.fsync.synced()


class Wire(MemoryTransport):
    """A connection whose end is not reported."""

    def close(self) -> None:
        self._closing = True


class Client:
    """A connection with a wire instead of a socket."""

    def __init__(self, bench: Bench, wire: Wire | None = None) -> None:
        self.bench = bench
        self.wire = wire or Wire()
        self.connection = ClientConnection(bench.clients)
        self.connection.connection_made(self.wire)
        self.session = self.connection.session
        self.session.receive(b"  V2", 0)

    def says(self, data: bytes, *, waits: bool = False) -> None:
        self.session.receive(data, time.time_ns())
        self.bench.write_batch.request_turn_for(self.connection, now_ns() if waits else 0)

    @property
    def sent(self) -> bytes:
        return self.wire.received

    @property
    def closed(self) -> bool:
        return self.wire.is_closing()

    @property
    def replies(self) -> list[tuple[int, bytes]]:
        return FrameParser().feed(self.sent)
