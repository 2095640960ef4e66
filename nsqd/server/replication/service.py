"""Replication of this nsqd: the node, its connections, the choice of replicas, and the daemon's calls."""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

from nsqcore.process.lifecycle import StartupError
from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.topic import Topic
from nsqd.log.layout import NewerVersion
from nsqd.options import NsqdOptions
from nsqd.replication.choosing import Candidate
from nsqd.replication.copies import Copies
from nsqd.replication.frames import Hello, Refuse
from nsqd.replication.framing import encode
from nsqd.replication.handshake import ACCEPTOR, CONNECTOR, Handshake
from nsqd.replication.job import Job
from nsqd.replication.jobs import Jobs
from nsqd.replication.link import PeerLink
from nsqd.replication.log_stream import ReplicaSettings
from nsqd.replication.node import ReplicationNode
from nsqd.replication.node_state import NodeState
from nsqd.replication.primary import Primary
from nsqd.replication.records import DamagedRecord, NodeRecordFile
from nsqd.replication.shown import no_replica
from nsqd.replication.startup import (
    OldCopies,
    promote_copied_log,
    refuse_old_copies,
    remove_transferred,
)
from nsqd.server.checkpointer import Checkpointer
from nsqd.server.clock import now_ns
from nsqd.server.fsync import Fsync
from nsqd.server.replication.choice import ReplicaChoice
from nsqd.server.replication.connection import Connections, own_certificate_hash
from nsqd.server.replication.connector import Connectors
from nsqd.server.replication.options import ClusterSecret, replica_settings
from nsqd.storage.data_path import DataPath
from nsqd.storage.slots import CheckpointJob
from nsqd.storage.topic_log import TopicLog

TICK_S: Final = 0.1
# Without connections.
_IDLE_TICK_S: Final = 0.5
_CHOOSE_S: Final = 0.5
# A stop waits so long for the last acknowledgements.
_LAST_ACKS_S: Final = 2.0
_NONCE_BYTES: Final = 32


class Replication:
    """See the module. Made before the data path is loaded; :meth:`begin` starts it when it is."""

    def __init__(
        self,
        options: NsqdOptions,
        broker: Broker,
        data: DataPath,
        fsync: Fsync,
        log: Log,
        ask_turn: Callable[[], None],
        *,
        server_tls: ssl.SSLContext | None,
        client_tls: ssl.SSLContext | None,
        look_up: Callable[[Sequence[bytes]], Awaitable[dict[bytes, list[str]]]],
        candidates: Callable[[], Awaitable[Sequence[Candidate]]],
        threads: Executor | None = None,
    ) -> None:
        """*look_up* asks nsqlookupd for addresses of identities, *candidates* for nodes with room.

        *threads* run the jobs; without a cluster secret there are none.
        """
        self.settings = replica_settings(options)
        self._options = options
        self._secret = ClusterSecret(options.cluster_secret_file, log.warning)
        # None before the data path is loaded, and without a cluster secret.
        self.node: ReplicationNode | None = None
        # The stream of the own log; it wants no replicas while there is no node.
        self.primary = Primary(ReplicaSettings(), b"", unneeded=lambda _name: [])
        self._broker = broker
        self._data = data
        self._fsync = fsync
        self._log = log
        self._ask_turn = ask_turn
        self._candidates = candidates
        self._threads = threads
        self._connections = Connections(
            log,
            self._run_jobs,
            lambda certificate: self._make_link(b"", certificate, connector=False),
            tls=server_tls,
            tls_required=options.replication_tls,
            certificate_hash=self._own_certificate_hash,
        )
        self._connectors = Connectors(
            self._connections,
            log,
            lambda expected, certificate: self._make_link(expected, certificate, connector=True),
            look_up,
            tls=client_tls,
        )
        self._choice: ReplicaChoice | None = None
        self._jobs: set[asyncio.Future[None]] = set()
        # The last task of each name.
        self._tasks: dict[str, asyncio.Task[None]] = {}

    # --- start and stop ---

    @property
    def accepts(self) -> bool:
        """Whether this node is a replica for others."""
        return self.is_on and self.settings.accept

    @property
    def is_on(self) -> bool:
        """Whether a cluster secret is set: without one nothing is replicated or accepted."""
        return bool(self._secret())

    def start(self, address: str) -> None:
        """Start, after the data path is loaded and before clients are served; *address* is where it is found.

        Raises StartupError.
        """
        data = self._data
        if not self.is_on:
            return
        with _start_errors(data):
            file = NodeRecordFile.load(data.disk, data.path, data.reservation.identity)
            file.begin_incarnation(os.urandom)
            state = NodeState(
                self.settings,
                file,
                address,
                self._broker,
                data,
                Copies(data.disk, data.path),
                lambda: int(time.time()),
                info=self._log.info,
                warn=self._log.warning,
            )
            node = ReplicationNode(state, Jobs(state))
            node.begin(now_ns())
        self.node, self.primary = node, node.primary
        options = self._options
        me = Candidate(node.identity, address, options.topology_zone, socket.gethostname())
        self._choice = ReplicaChoice(
            *(node, me, options.replica, options.replica_replace_after),
            *(self._candidates, self._log, now_ns()),
        )

    def before_load(self) -> None:
        """Refuse copies of a development version, remove transferred logs, and promote copied ones.

        Raises StartupError.
        """
        data = self._data
        copied = 0
        with _start_errors(data):
            refuse_old_copies(data.disk, data.path)
            identity = data.reservation.named()
            removed = remove_transferred(data.disk, data.path, identity) if identity else 0
            if self.is_on:
                copied = promote_copied_log(data.disk, data.path, data.reservation)
        if removed:
            self._log.info("REPLICATION: %d topics were transferred to other nodes, and are removed", removed)
        if copied:
            self._log.info("REPLICATION: %d topics are those of the node whose data path was copied", copied)

    async def watch(self, checkpoints: Checkpointer) -> None:
        """Drive everything that depends on time, until cancelled; *checkpoints* writes those of replicas."""
        node = self.node
        if node is None:
            await asyncio.Event().wait()
            return
        try:
            while True:
                node.tick(now_ns())
                node.state.set_draining(draining=self._broker.leaving or self._broker.disk_low)
                if self._choice is not None:
                    self._choice.update(self._connectors.all, now_ns())
                    self._connectors.keep(node.wanted_peers(), self._choice.addresses)
                self._run_jobs()
                self._write_checkpoints(node, checkpoints)
                self._once("choice of replicas", self._choose)
                if node.state.local_syncs:
                    self._once("sync for replication", partial(self._sync, node))
                if node.copies.removable:
                    self._once("removal of dropped copies", partial(self._remove, node))
                self.flush()
                if node.state.wants_turn:
                    node.state.wants_turn = False
                    self._ask_turn()
                await asyncio.sleep(TICK_S if self._connections.all or self._connectors.all else _IDLE_TICK_S)
        finally:
            # Otherwise a thread that is still at work could write after later writes.
            await asyncio.gather(*self._jobs, return_exceptions=True)

    def _once(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin a task, unless the last one of its name has not ended."""
        last = self._tasks.get(name)
        if last is not None:
            if not last.done():
                return
            last.result()
        self._tasks[name] = asyncio.create_task(work(), name=name)

    async def wait_until_answered(self) -> None:
        """Wait until publishers that wait for a replica were answered, at most for --replica-ack-timeout."""
        await self._flush_while(lambda link: link.sender.has_waiters, self.settings.timeout_ns / 1e9)

    async def _flush_while(self, is_busy: Callable[[PeerLink], bool], seconds: float) -> None:
        """Send frames while a link is busy, for so long at most."""
        node, now = self.node, asyncio.get_running_loop().time
        until = now() + seconds
        while node is not None and any(map(is_busy, node.state.links)) and now() < until:
            self.flush()
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Send the last checkpoints, and close all connections."""
        await self._flush_while(
            lambda link: link.is_up and link.connector and bool(link.sender.lag_bytes), _LAST_ACKS_S
        )
        tasks = [*self._connectors.tasks, *self._tasks.values()]
        self._connections.close()
        if self._threads is not None:
            await asyncio.to_thread(self._threads.shutdown)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- connections ---

    def accept(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take over the connection of another node, or refuse it where replication is off."""
        if self.node is None:
            sentence = "no cluster secret is set here: --cluster-secret-file"
            transport.write(encode(Refuse(Refuse.NOT_A_MEMBER, sentence)))
            transport.close()
        else:
            self._connections.accept(transport, data)

    def _own_certificate_hash(self) -> bytes:
        try:
            return own_certificate_hash(self._options.tls_cert)
        except (OSError, ValueError) as error:
            self._log.warning("REPLICATION: the certificate cannot be read - %s", error)
            return b""

    def _make_link(self, expected: bytes, certificate: bytes, *, connector: bool) -> PeerLink:
        node = self.node
        assert node is not None  # noqa: S101 - nothing is connected before the data path is loaded
        record = node.state.record
        me = Hello(
            *(node.identity, record.incarnation, record.token, record.previous_token),
            node_id=self._options.node_id,
            address=node.state.address,
            nonce=os.urandom(_NONCE_BYTES),
        )
        handshake = Handshake(
            CONNECTOR if connector else ACCEPTOR,
            me,
            self._secret,
            node.state.incarnations,
            expected,
            certificate,
            self._other_node,
        )
        link = PeerLink(node, handshake, now_ns(), connector=connector)
        node.state.links.append(link)
        return link

    def _other_node(self, hello: Hello) -> str:
        """The address of another connected node with that node id."""
        node = self.node
        for link in [] if node is None else node.state.links:
            other = link.hello
            if not link.is_up or other is None or other.identity == hello.identity:
                continue
            if other.node_id == hello.node_id:
                return other.address
        return ""

    # --- the choice of replicas ---

    async def _choose(self) -> None:
        choice = self._choice
        if choice is not None:
            await choice.choose(now_ns())
        await asyncio.sleep(_CHOOSE_S)

    # --- jobs ---

    def _run_jobs(self) -> None:
        node = self.node
        for job in [] if node is None else node.state.take_jobs():
            try:
                future = asyncio.get_running_loop().run_in_executor(self._threads, job.run, self._data.disk)
            except RuntimeError:
                # The threads have ended: the node stops, and the next start finds the files that were not
                # synced.
                return
            self._jobs.add(future)
            future.add_done_callback(partial(self._job_ended, job))

    def _job_ended(self, job: Job, future: "asyncio.Future[None]") -> None:
        self._jobs.discard(future)
        if self.node is None or future.cancelled():
            return
        try:
            self.node.job_ended(job, cast("Exception | None", future.exception()), now_ns())
        finally:
            self.flush()
            self._run_jobs()
            if job.origin:
                self._ask_turn()

    def _write_checkpoints(self, node: ReplicationNode, checkpoints: Checkpointer) -> None:
        """Write the wanted checkpoints."""
        for topic in list(node.state.to_checkpoint):
            del node.state.to_checkpoint[topic]
            task = asyncio.create_task(self._checkpoint(node, topic, checkpoints), name="replica checkpoint")
            self._jobs.add(task)
            task.add_done_callback(self._jobs.discard)

    async def _checkpoint(self, node: ReplicationNode, topic: Topic, checkpoints: Checkpointer) -> None:
        """Write the checkpoint of a replica's topic, which the checkpointer does not visit."""
        if not await checkpoints.write_now(topic) and not topic.deleted:
            node.state.to_checkpoint[topic] = None

    async def _remove(self, node: ReplicationNode) -> None:
        try:
            await asyncio.to_thread(node.copies.remove_deleted)
        except OSError as error:
            self._log.warning("REPLICATION: failed to remove a dropped copy, will try again - %s", error)
            await asyncio.sleep(1)

    async def _sync(self, node: ReplicationNode) -> None:
        """Sync everything written here, for the checks whether this node is fully replicated."""
        checks, node.state.local_syncs = node.state.local_syncs, []
        durable = await self._fsync.synced()
        for check in checks:
            check.synced_here = durable

    # --- called by the write batch and the checkpointer ---

    def flush(self) -> None:
        """Send the collected frames, to each peer in one write."""
        self._connections.flush()

    def checkpointed(self, topic: Topic, store: TopicLog, job: CheckpointJob) -> None:
        """A checkpoint was written."""
        node = self.node
        if node is None:
            return
        node.checkpointed(topic, store, job)

    def topic_created(self, topic: Topic) -> None:
        """An own topic was made; nothing is appended to its log yet."""
        if self.node is not None:
            self.node.topic_created(topic)

    def topic_deleted(self, topic: Topic) -> None:
        """An own topic was deleted."""
        if self.node is not None:
            self.node.topic_deleted(topic)

    # --- shown to operators ---

    def to_json(self) -> dict[str, Any]:
        """The content of GET /replication."""
        if self.node is None:
            return {
                "identity": self._data.reservation.identity.hex(),
                "incarnation": 0,
                "epoch": 0,
                "replicas_wanted": self.settings.replicas,
                "fully_replicated": False,
                "waits_for": "",
                "replicas": [],
                "copies": [],
            }
        found = self.node.to_json(now_ns())
        found["waits_for"] = "" if self._choice is None else self._choice.waits_for
        connectors = [one for one in self._connectors.all if one.link is None]
        unknown = [one.address for one in connectors if not one.identity]
        found["replicas"] += map(no_replica, unknown[: 0 if self._choice is None else self._choice.missing])
        for replica in found["replicas"]:
            name, address = replica["identity"], replica["address"]
            problems = [
                one.problem
                for one in connectors
                if (one.identity.hex() == name if one.identity else one.address == address)
            ]
            replica["problem"] = next(filter(None, problems), "")
        return found


@contextmanager
def _start_errors(data: DataPath) -> Iterator[None]:
    """Raises StartupError."""
    try:
        yield
    except (DamagedRecord, OldCopies) as error:
        raise StartupError(str(error)) from error
    except (OSError, NewerVersion) as error:
        raise StartupError(f"failed to load {data.path} - {error}") from error
