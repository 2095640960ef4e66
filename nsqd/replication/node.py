"""Replication of one node: its logs, copies and connections joined. No socket, no clock, no thread.

The driver calls :meth:`ReplicationNode.tick` some ten times a second, makes the connections of
:meth:`ReplicationNode.wanted_peers`, and runs the jobs of :meth:`ReplicationNode.take_jobs` in any thread.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from nsqd.engine import facts, promoted
from nsqd.engine.broker import Broker
from nsqd.engine.replica_topic import ReplicaTopic
from nsqd.engine.topic import Topic
from nsqd.log.disk import Disk, words_of
from nsqd.log.ranges import Ranges
from nsqd.log.writer import LogWriter
from nsqd.replication.channel_states import delete_below
from nsqd.replication.claims import count
from nsqd.replication.copies import Copies
from nsqd.replication.copy_record import CopyRecord
from nsqd.replication.exchange import no_copy
from nsqd.replication.frames import (
    REFUSALS,
    ChannelState,
    DeleteTopic,
    Draining,
    Holder,
    Log,
    Refuse,
    Snapshot,
    Status,
    TakeOver,
)
from nsqd.replication.handshake import Incarnations
from nsqd.replication.incoming import IncomingLog
from nsqd.replication.link import PeerLink
from nsqd.replication.local_copy import (
    CopyJob,
    DeleteTopicOfCopy,
    DropCopy,
    LocalCopy,
    OpenCopy,
    PromoteCopy,
    SaveRecord,
)
from nsqd.replication.log_copies import LogCopies
from nsqd.replication.log_stream import LogStream
from nsqd.replication.node_record import NodeRecord, NodeRecordFile
from nsqd.replication.primary import Primary, ReplicaSettings
from nsqd.replication.replicated import Replicated
from nsqd.replication.shown import shown_node
from nsqd.storage.copy_store import CopyStore
from nsqd.storage.data_path import DataPath, extents_of
from nsqd.storage.slots import CheckpointJob
from nsqd.storage.topic_store import TopicStore, store_of

_S: Final = 1_000_000_000
# A holder that was not heard for so long is forgotten.
_FORGET_AFTER_S: Final = 7 * 24 * 3600
_RETRY_NS: Final = 5 * _S
# Topics that cannot be read are tried again after so long.
_READ_AGAIN_NS: Final = 60 * _S
# A pause of the event loop that is longer than this counts as a suspension (SIGSTOP, a frozen machine).
_SUSPENDED_NS: Final = 5 * _S


@dataclass(slots=True)
class SaveNode:
    """Save the node record; then a raised epoch counts."""

    record: NodeRecord
    file: NodeRecordFile

    def run(self, _disk: Disk) -> None:
        """Raises OSError."""
        self.file.save(self.record)


@dataclass(slots=True)
class RaiseEpoch:
    """Save the record of a promoted copy with a higher epoch."""

    copy: LocalCopy
    copies: Copies
    record: CopyRecord

    def run(self, _disk: Disk) -> None:
        """Raises OSError."""
        self.copies.save(self.record)


NodeJob: TypeAlias = CopyJob | SaveNode | RaiseEpoch


class ReplicationNode:
    """See the module."""

    def __init__(
        self,
        settings: ReplicaSettings,
        identity: bytes,
        address: str,
        broker: Broker,
        data: DataPath,
        copies: Copies,
        file: NodeRecordFile,
        now_s: Callable[[], int],
        *,
        info: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """*file* is loaded; *now_s* returns unix seconds; *info* and *warn* get sentences for the log."""
        self.settings = settings
        self.identity = identity
        # Where this node is found.
        self.address = address
        self.broker = broker
        self.data = data
        self.copies = copies
        # The record as it is to be; the file has what is durable.
        self.record = file.record
        self._file = file
        self._now_s = now_s
        self.incarnations = Incarnations()
        self.links: list[PeerLink] = []
        self.logs: dict[bytes, LogCopies] = {}
        # Topics whose state was changed by another copy and that the checkpointer does not visit.
        self.to_checkpoint: dict[Topic, None] = {}
        # A note was staged, or messages became deliverable.
        self.wants_turn = False
        # Checks that wait for an fsync of everything written here.
        self.local_syncs: list[Replicated] = []
        self.is_draining = False
        # All logs are transferred to other nodes; to the node at that address, if one is given.
        self.is_decommissioning = False
        self.fewer_copies = False
        self.target = ""
        # The identities of this node's replicas, the best first.
        self.replicas: list[bytes] = []
        self.failovers = 0
        self.refusals: Counter[str] = Counter()
        self._info = info
        self._warn = warn
        self._jobs: list[NodeJob] = []
        self._copy_of: dict[LogWriter, tuple[LogCopies, LocalCopy, Topic]] = {}
        self._own: LocalCopy = LocalCopy(identity, identity)
        self._own_log = self._log(identity)
        self._own_stores: dict[str, TopicStore] = {}
        # When each holder was last heard, or first known, in unix seconds.
        self._heard_s: dict[bytes, int] = {}
        # What peers have said of themselves, with the tokens of their incarnations.
        self._draining: dict[bytes, tuple[bytes, Draining]] = {}
        # Deleted topics whose folders are to be renamed.
        self._to_delete: list[tuple[LocalCopy, DeleteTopic, PeerLink, int]] = []
        self._is_saving = False
        self._save_again = False
        self._ticked_ns = 0
        self._next_second_ns = 0

    # --- start ---

    def begin(self, now_ns: int) -> None:
        """Start with what is on disk, after the data path is loaded and before clients are served.

        Raises OSError.
        """
        own = self._own
        own.own_epoch, own.own_seen = self.record.epoch, self.record.highest_epoch
        own.topics = self.broker.topics
        own.is_open = True
        self._own_log.add(own)
        self._make_primary(self._own_log, own, self._replicas_of)
        for topic in self.broker.topics.values():
            store = store_of(topic)
            if store is not None:
                self._made_store(store, topic.name)
        self.data.made_store = self._made_store
        for record in self.copies.scan():
            self._found(record, now_ns)
        self._own_log.ask(own, now_ns)
        self._ticked_ns = now_ns

    def _found(self, record: CopyRecord, now_ns: int) -> None:
        copy = LocalCopy(record.origin, self.identity, record, owner=record.owner)
        copy.since_ns = copy.detached_ns = now_ns
        log = self._log(record.origin)
        log.add(copy)
        if record.promoted:
            copy.asks_until_ns = now_ns
            self.open(log, copy)

    def _log(self, origin: bytes) -> LogCopies:
        found = self.logs.get(origin)
        if found is None:
            found = self.logs[origin] = LogCopies(self, origin)
        return found

    def _make_primary(self, log: LogCopies, copy: LocalCopy, replicas_of: Callable[[str], int]) -> Primary:
        def unneeded(name: str) -> Ranges:
            topic = copy.topics.get(name)
            return [] if topic is None else facts.settled(topic, extents_of(topic))

        primary = Primary(
            self.settings,
            copy.origin,
            replicas_of,
            unneeded=unneeded,
            may_resume=lambda stream: log.may_resume(copy, self.peer_of(stream)),
        )
        primary.copy = copy.number
        log.primaries[copy] = primary
        return primary

    def _made_store(self, store: TopicStore, name: str) -> None:
        self.topic_deleted(name, self._own_stores.get(name))
        self._own_stores[name] = store
        self.primary.add(store, name)

    def _add_topic(self, log: LogCopies, copy: LocalCopy, topic: Topic) -> None:
        store = store_of(topic)
        if store is None:
            return
        self._copy_of[store] = (log, copy, topic)
        primary = log.primaries.get(copy)
        if primary is not None:
            primary.add(store, topic.name)

    def _replicas_of(self, name: str) -> int:
        topic = self.broker.topics.get(name)
        wanted = None if topic is None else topic.settings.replicas
        return self.settings.replicas if wanted is None else wanted

    # --- what the write batch and the checkpointer call ---

    @property
    def primary(self) -> Primary:
        """The stream of this node's own log."""
        return self._own_log.primaries[self._own]

    @property
    def own_copy(self) -> LocalCopy:
        return self._own

    def checkpointed(self, topic: Topic, store: TopicStore, job: CheckpointJob) -> None:
        """A checkpoint was written, of an own topic or of one of a copy."""
        found = self._copy_of.get(store)
        log, copy = (self._own_log, self._own) if found is None else found[:2]
        primary = log.primaries.get(copy)
        if primary is not None:
            primary.checkpointed(store, job)
        self.to_checkpoint.pop(topic, None)
        log.topic_changed(copy, topic)

    def topic_deleted(self, name: str, store: TopicStore | None) -> None:
        """An own topic was deleted: every holder is told, now or when it connects."""
        if store is None or self._own_stores.get(name) is not store:
            return
        del self._own_stores[name]
        self.primary.remove(store)
        self._own_log.topic_removed(self._own, name)
        holders = {one.identity for one in self.record.holders}
        if not holders:
            return
        self._change(self.record.with_deletion(name, store.end))
        frame = DeleteTopic(self.identity, name, store.end)
        for link in self.links:
            if link.is_up and link.connector and link.peer in holders:
                link.delete_topic(frame)

    def copies_deleted(self, topics: Iterable[Topic]) -> None:
        """An own topic was deleted, and with it these topics of promoted copies: their checkpoints say so."""
        self.to_checkpoint.update(dict.fromkeys(topics))

    def deletion_acknowledged(self, peer: bytes, frame: DeleteTopic) -> None:
        """A holder has removed a deleted topic."""
        self._change(self.record.with_acknowledged(frame.name, frame.below, peer))

    def _change(self, record: NodeRecord) -> None:
        """Let this be the node record, and save it soon."""
        if record != self.record:
            self.record = record
            self._save_again = True

    # --- connections ---

    def wanted_peers(self) -> dict[bytes, str]:
        """The nodes to which this node connects, with the last known address of each."""
        addresses = {one.identity: one.address for one in self.record.replicas}
        wanted = {identity: addresses.get(identity, "") for identity in self.replicas}
        for log in self.logs.values():
            for copy in log.copies:
                if not copy.is_streamed:
                    wanted |= {
                        who: address for who, address in self.holders_of(copy).items() if who not in wanted
                    }
        wanted.pop(self.identity, None)
        return wanted

    def add_link(self, link: PeerLink) -> None:
        """A connection was made or accepted."""
        self.links.append(link)

    def link_up(self, link: PeerLink, now_ns: int) -> None:
        """The peer has proved its membership."""
        for other in [one for one in self.links if one is not link and one.is_up and one.peer == link.peer]:
            same = (
                other.hello is not None and link.hello is not None and other.hello.token == link.hello.token
            )
            if other.connector == link.connector or not same:
                # The later connection, or the later incarnation, ends the earlier one.
                other.end("the peer has connected again")
        for log in list(self.logs.values()):
            if log.copies and (link.peer in log.holders or link.peer in log.exchanges):
                log.exchange(link, now_ns).send(now_ns)
        self._say_draining(link)
        if link.connector:
            for one in self.record.deletions:
                if link.peer in one.unacknowledged:
                    link.delete_topic(DeleteTopic(self.identity, one.topic, one.below))
            token, frame = self._draining.get(link.peer, (b"", None))
            if frame is not None and token == link.token:
                self.take_draining(link, frame)
            self._stream_to(link, now_ns)

    def link_ended(self, link: PeerLink) -> None:
        """A connection is gone."""
        now_ns = max(self._ticked_ns, link.heard_ns)
        for one in link.incoming.values():
            self._end_negotiation(one)
            copy = self._copy_with(one.record)
            if copy is not None:
                copy.is_streamed = False
                copy.since_ns = copy.detached_ns = now_ns
                self._log(copy.origin).state_changed(copy)
        for log in self.logs.values():
            log.link_ended(link)
        if link in self.links:
            self.links.remove(link)

    def set_draining(self, *, draining: bool) -> None:
        """Tell primaries whether to choose another replica: this node drains, or has no room."""
        self.is_draining = draining
        for link in self.links:
            self._say_draining(link)

    def take_draining(self, link: PeerLink, frame: Draining) -> None:
        """A peer drains, or does not any more."""
        link.peer_drains, link.peer_accepts_none = frame.draining, frame.fewer_copies
        self._draining[link.peer] = (link.token, frame)

    def _say_draining(self, link: PeerLink) -> None:
        frame = Draining(self.is_draining, self.is_decommissioning and self.fewer_copies)
        if link.is_up and not link.connector and frame != link.said_draining:
            link.said_draining = frame
            link.send(frame)

    def refused(self, code: int) -> None:
        """Count a refusal."""
        self.refusals[REFUSALS.get(code, str(code))] += 1

    def link_to(self, peer: bytes) -> PeerLink | None:
        """A connection to that peer; the one that this node made, if there are two."""
        return max(self.links_to(peer), key=lambda one: one.connector, default=None)

    def links_to(self, peer: bytes) -> list[PeerLink]:
        """The connections to that peer: one that this node made, and one that the peer made."""
        return [one for one in self.links if one.is_up and one.peer == peer]

    def links_of(self, primary: Primary) -> list[PeerLink]:
        """The connections over which that log is streamed."""
        return [one for one in self.links if one.stream_of(primary) is not None]

    def peer_of(self, stream: LogStream) -> bytes:
        """The identity of the replica of a stream."""
        return next((one.peer for one in self.links if stream in one.streams.values()), b"")

    # --- streams to replicas ---

    def _stream_to(self, link: PeerLink, now_ns: int) -> None:
        """Stream to a peer each log of which it is to be a replica."""
        for log in list(self.logs.values()):
            for copy, primary in list(log.primaries.items()):
                if (
                    link.is_closed
                    or link.peer_accepts_none
                    or copy.is_busy
                    or link.stream_of(primary) is not None
                ):
                    continue
                chosen = self._chosen(log, copy)
                if link.peer in chosen:
                    self._learn_replica(copy, link)
                    log.exchange(link, now_ns).send(now_ns)
                    primary.epoch = copy.epoch
                    holders = {**self.holders_of(copy), self.identity: self.address}
                    primary.holders = tuple(
                        Holder(*one) for one in sorted(holders.items()) if one[0] != link.peer
                    )
                    link.begin_stream(primary, chosen.index(link.peer), now_ns)

    def _chosen(self, log: LogCopies, copy: LocalCopy) -> list[bytes]:
        """The replicas of an owner here, the first of which takes over first."""
        if copy.is_origin:
            return [] if self.record.is_transferred else self.replicas
        if not log.pending(copy):
            return []
        primary = log.primaries.get(copy)
        links = {one.peer: one for one in self.links if one.is_up and one.connector}
        streaming = [
            peer
            for peer, link in links.items()
            if primary is not None and link.stream_of(primary) is not None
        ]
        order = dict.fromkeys((*streaming, *(node for node, _ in log.known), *self.replicas))
        found = sorted((one for one in order if one in links), key=lambda one: links[one].peer_drains)
        return found[: self.settings.replicas]

    def _learn_replica(self, copy: LocalCopy, link: PeerLink) -> None:
        if copy.record is None:
            self._change(self.record.with_holder(link.peer, link.address))
        elif copy.record.holders.get(link.peer) != link.address:
            copy.record.holders[link.peer] = link.address
            self._save(copy)

    def stream_began(self, link: PeerLink) -> None:
        """The replica has answered, and the stream has begun."""
        self._info(f"REPLICATION({link.address}): streaming to replica")

    # --- streams from primaries ---

    def candidate_for(self, link: PeerLink, frame: Log) -> CopyRecord | None:
        """The copy that a stream may resume; None for a new one. Refuses while a thread uses it."""
        log = self._log(frame.origin)
        log.exchange(link, link.heard_ns)
        copies = [
            one
            for one in log.copies
            if one.record is not None
            and not (one.is_owner or one.is_streamed or one.is_negotiating or one.take_over_epoch)
            and one.epoch <= frame.epoch
        ]
        if not copies:
            if not self.settings.accept:
                link.refuse(Refuse.DISK, "no replicas are accepted here: --accept-replicas=false")
            return None
        newest = max(copies, key=lambda one: one.number)
        record = newest.record
        if newest.is_busy:
            link.refuse(Refuse.DISK, "the replica is reading its copy, try again")
        elif record is not None and record.opened and not newest.is_open:
            self.open(log, newest)
            link.refuse(Refuse.DISK, "the replica is reading its copy, try again")
        else:
            newest.is_negotiating = True
            log.exchange(link, link.heard_ns).send(link.heard_ns)
        return record

    def before_stream(self, one: IncomingLog, frame: Snapshot) -> None:
        """A stream is about to enter a copy: nothing here uses its files any more."""
        copy = self._copy_with(one.candidate) if frame.resume else None
        if copy is not None and copy.is_open:
            for topic in copy.topics.values():
                self._forget_topic(topic)
                store = store_of(topic)
                if store is not None:
                    store.close()
            copy.topics, copy.is_open = {}, False

    def replica_began(self, link: PeerLink, one: IncomingLog, now_ns: int) -> None:
        """A stream has entered a copy, which may be new."""
        record = one.record
        if record is None:
            return
        self._end_negotiation(one)
        log = self._log(record.origin)
        copy = self._copy_with(record)
        if copy is None:
            copy = LocalCopy(record.origin, self.identity, record)
            log.add(copy)
        copy.owner, copy.is_streamed = link.peer, True
        copy.since_ns = copy.detached_ns = now_ns
        log.state_changed(copy)
        log.exchange(link, now_ns)

    def _end_negotiation(self, one: IncomingLog) -> None:
        copy = self._copy_with(one.candidate)
        if copy is not None:
            copy.is_negotiating = False

    def _copy_with(self, record: CopyRecord | None) -> LocalCopy | None:
        if record is None:
            return None
        log = self.logs.get(record.origin)
        return None if log is None else next((one for one in log.copies if one.record is record), None)

    def take_over(self, link: PeerLink, one: IncomingLog, epoch: int, now_ns: int) -> None:
        """The owner transfers a log to this node: its copy is promoted at once."""
        copy = self._copy_with(one.record)
        if copy is not None:
            copy.take_over_epoch = epoch
            self._info(
                f"REPLICATION({link.address}): taking over {one.log.origin.hex()[:8]} under epoch {epoch}"
            )
            link.end("the log is transferred to this node")
            self._log(copy.origin).tick(now_ns)

    # --- statuses ---

    def take_channel_state(self, link: PeerLink, frame: ChannelState) -> None:
        log = self.logs.get(frame.origin)
        exchange = None if log is None or not log.copies else log.exchange(link, link.heard_ns)
        if exchange is not None and exchange.link is link:
            exchange.take_state(frame)

    def take_status(self, link: PeerLink, frame: Status, now_ns: int) -> None:
        log = self.logs.get(frame.origin)
        if log is None or not (log.copies or link.peer in log.exchanges):
            if frame.kind:
                link.send(no_copy(frame.origin, self.identity))
            return
        exchange = log.exchange(link, now_ns)
        if exchange.link is not link:
            exchange.use_this_link(now_ns)
            return
        exchange.take(frame, now_ns)
        exchange.send(now_ns)

    def holders_of(self, copy: LocalCopy) -> dict[bytes, str]:
        """The other holders of a log, as a copy here knows them."""
        if copy.record is not None:
            return copy.record.holders
        return {one.identity: one.address for one in self.record.holders}

    def learn_holders(self, log: LogCopies, peer: dict[bytes, str], others: dict[bytes, str]) -> None:
        """Remember who holds copies of a log: a *peer*, whose address is right, and others that it knows."""
        found = others | peer
        for copy in log.copies:
            holders = self.holders_of(copy)
            news = {
                who: address
                for who, address in found.items()
                if who not in (self.identity, *log.without_copy)
                and (who not in holders or (address != holders[who] and (who in peer or not holders[who])))
            }
            if not news:
                continue
            if copy.record is None:
                record = self.record
                for who, address in news.items():
                    record = record.with_holder(who, address)
                self._change(record)
            else:
                copy.record.holders |= news
                self._save(copy)

    def forget_holder(self, log: LogCopies, peer: bytes) -> None:
        """A node has no copy of a log."""
        for copy in log.copies:
            if copy.record is None:
                if peer not in self.replicas:
                    self._change(self.record.without_holder(peer))
            elif copy.record.holders.pop(peer, None) is not None:
                self._save(copy)

    def see_epoch(self, log: LogCopies, epoch: int) -> None:
        """Remember the highest epoch."""
        for copy in log.copies:
            if epoch <= copy.seen:
                continue
            if copy.record is None:
                copy.own_seen = epoch
                self._change(replace(self.record, highest_epoch=epoch))
            else:
                copy.record.seen = epoch
                self._save(copy)

    def merged(self, copy: LocalCopy, topic: Topic) -> None:
        """Another copy's channel state was news for this topic."""
        self.wants_turn = True
        if isinstance(topic, ReplicaTopic) and (topic.tombstoned or not copy.is_owner):
            self.to_checkpoint[topic] = None

    # --- what a log decides ---

    def open(self, log: LogCopies, copy: LocalCopy) -> None:
        """Recover the topics of a copy."""
        copy.is_busy = True
        self._jobs.append(OpenCopy(copy, self.copies, self.data, self.broker))
        log.changed()

    def promote(self, log: LogCopies, copy: LocalCopy, epoch: int, *, failover: bool) -> None:
        """Let a replica become an owner."""
        copy.is_busy = True
        self.failovers += failover
        self._jobs.append(PromoteCopy(copy, self.copies, epoch, failover))
        log.changed()

    def raise_epoch(self, log: LogCopies, copy: LocalCopy, epoch: int) -> None:
        """Let an owner claim what a silent owner with a higher claim has delivered."""
        copy.is_busy = True
        if copy.record is None:
            self._change(replace(self.record, epoch=epoch, highest_epoch=epoch))
        else:
            record = replace(copy.record, epoch=epoch, seen=epoch)
            self._jobs.append(RaiseEpoch(copy, self.copies, record))
        log.changed()

    def drop(self, log: LogCopies, copy: LocalCopy) -> None:
        """Remove a copy that is not needed any more."""
        if copy.is_origin:
            self.origin_dropped()
            return
        copy.is_busy = True
        for topic in copy.topics.values():
            self._forget_topic(topic)
        # Nothing is learned for it any more.
        copy.is_open = False
        self._jobs.append(DropCopy(copy, self.copies, list(copy.topics.values()), self.data.disk))
        log.changed()

    def _forget_topic(self, topic: Topic) -> None:
        store = store_of(topic)
        if store is not None:
            self._copy_of.pop(store, None)
        self.to_checkpoint.pop(topic, None)
        if isinstance(topic, ReplicaTopic):
            promoted.detach(self.broker, topic, force=True)

    def request_local_sync(self, check: Replicated) -> None:
        """Let the driver sync everything written here; it sets `synced_here`."""
        self.local_syncs.append(check)

    # --- records ---

    def _save(self, copy: LocalCopy) -> None:
        if not copy.is_busy and not any(
            isinstance(one, SaveRecord) and one.copy is copy for one in self._jobs
        ):
            self._jobs.append(SaveRecord(copy, self.copies))

    def set_replicas(self, replicas: tuple[Holder, ...]) -> None:
        """These nodes are the replicas from now on, the best first."""
        self.replicas = [one.identity for one in replicas if one.identity]
        record = replace(self.record, replicas=replicas)
        for one in replicas:
            if one.identity:
                record = record.with_holder(one.identity, one.address)
        self._change(record)
        # Streams to new replicas begin in the next tick.
        self._next_second_ns = 0

    # --- jobs ---

    def take_jobs(self) -> list[NodeJob]:
        """Jobs to be run now, in any thread."""
        if self._save_again and not self._is_saving:
            self._save_again, self._is_saving = False, True
            self._jobs.append(SaveNode(self.record, self._file))
        jobs, self._jobs = self._jobs, []
        return jobs

    def ended(self, job: NodeJob, error: Exception | None, now_ns: int) -> None:
        """A job has run, or failed."""
        if isinstance(job, SaveNode):
            self._node_saved(job, error)
            return
        copy = job.copy
        log = self._log(copy.origin)
        if not isinstance(job, SaveRecord):
            copy.is_busy = False
        if error is None:
            copy.problems.pop("", None)
        if error is not None:
            self._failed(copy, job, error, now_ns)
        elif isinstance(job, OpenCopy):
            self._opened(log, copy, job, now_ns)
        elif isinstance(job, PromoteCopy):
            self._promoted(log, copy, now_ns, failover=job.failover)
        elif isinstance(job, RaiseEpoch):
            if copy.record is not None:
                copy.record.epoch, copy.record.seen = job.record.epoch, max(copy.record.seen, job.record.seen)
        elif isinstance(job, DeleteTopicOfCopy):
            job.link.unacknowledged.remove(job.position)
            if copy.record is not None:
                self.copies.forget(copy.record, self.copies.folder(copy.record, job.name))
        elif isinstance(job, DropCopy):
            log.remove(copy)
            copy.topics = {}
            self._info(f"REPLICATION: the copy {copy.number} of {copy.origin.hex()[:8]} was dropped")
        log.changed()
        log.tick(now_ns)

    def _node_saved(self, job: SaveNode, error: Exception | None) -> None:
        self._is_saving = False
        if error is not None:
            self._warn(f"REPLICATION: failed to save replication.json - {error}")
            self._save_again = True
            return
        own = self._own
        if job.record.epoch > own.own_epoch:
            own.own_epoch, own.is_busy = job.record.epoch, False
            own.own_seen = max(own.own_seen, own.own_epoch)
            self._own_log.changed()

    def _failed(self, copy: LocalCopy, job: NodeJob, error: Exception, now_ns: int) -> None:
        reason = words_of(error) if isinstance(error, OSError) else str(error) or type(error).__name__
        copy.retry_ns = now_ns + _RETRY_NS
        if isinstance(job, DeleteTopicOfCopy):
            job.link.unacknowledged.remove(job.position)
            job.link.end(f"a deleted topic is still here: {reason}")
        if isinstance(job, DropCopy):
            # Its topics were taken away from the broker.
            copy.topics, copy.is_open = {}, False
        if copy.problems.get("") != reason:
            copy.problems[""] = reason
            self._warn(f"REPLICATION: the copy {copy.number} of {copy.origin.hex()[:8]} failed - {reason}")

    def _opened(self, log: LogCopies, copy: LocalCopy, job: OpenCopy, now_ns: int) -> None:
        for name, reason in job.failed.items():
            if copy.problems.get(name) != reason:
                self._warn(f"REPLICATION: topic {name} of {copy.origin.hex()[:8]} cannot be read - {reason}")
        copy.problems = dict(job.failed)
        copy.read_again_ns = now_ns + _READ_AGAIN_NS
        copy.topics.update(job.found)
        copy.is_open = True
        for topic in job.found.values():
            # What was recovered is on the disk.
            topic.take_changed()
            self._add_topic(log, copy, topic)
        log.opened(copy)
        for exchange in log.exchanges.values():
            exchange.ask()
        if copy.is_owner:
            self._deliver(log, copy, job.found.values(), now_ns)

    def _promoted(self, log: LogCopies, copy: LocalCopy, now_ns: int, *, failover: bool) -> None:
        copy.take_over_epoch = 0
        for name, topic in copy.topics.items():
            if copy.record is not None and isinstance(topic.source, CopyStore):
                topic.source.move_to(self.copies.folder(copy.record, name).path)
        log.state_changed(copy)
        self._info(
            f"REPLICATION: took over {copy.origin.hex()[:8]}, epoch {copy.epoch}, {len(copy.topics)} topics"
        )
        self._deliver(log, copy, copy.topics.values(), now_ns, failover=failover)

    def _deliver(
        self,
        log: LogCopies,
        copy: LocalCopy,
        topics: Iterable[Topic],
        now_ns: int,
        *,
        failover: bool = False,
    ) -> None:
        """Begin to deliver from a promoted copy; old messages wait until the holders were asked."""
        primary = log.primaries.get(copy)
        if primary is None:
            primary = self._make_primary(log, copy, lambda _name: self.settings.replicas)
        log.ask(copy, now_ns, failover=failover)
        for topic in topics:
            if isinstance(topic, ReplicaTopic):
                promoted.attach(self.broker, topic, now_ns)
                self._add_topic(log, copy, topic)
        self.wants_turn = True

    # --- decommission ---

    def decommission(self, target: str, *, fewer_copies: bool) -> None:
        """Transfer all logs; refuse publishes from now on."""
        self.is_decommissioning, self.target, self.fewer_copies = True, target, fewer_copies
        self.broker.draining = self.broker.decommissioning = True

    def cancel_decommission(self) -> None:
        """Keep the logs that were not transferred yet, and take publishes again."""
        self.is_decommissioning, self.target = False, ""
        self._change(replace(self.record, is_transferred=False))
        self.broker.draining = self.broker.decommissioning = False
        for log in self.logs.values():
            log.resume_delivery()

    def transfer_stream(self, primary: Primary) -> LogStream | None:
        """The stream to the node that is to take this log over."""
        targets = {one.identity for one in self.record.replicas if one.address == self.target}
        found = [
            (link.address == self.target or link.peer in targets, stream)
            for link in self.links_of(primary)
            if not link.peer_drains and (stream := link.stream_of(primary)) is not None
        ]
        found = [one for one in found if one[0] or not self.target]
        return max(found, key=lambda one: one[1].is_caught_up, default=(False, None))[1]

    def send_take_over(self, stream: LogStream, epoch: int) -> None:
        """Let the replica of this stream take the log over; it ends the connection when it does."""
        for link in self.links:
            if stream in link.streams.values() and not stream.take_over_sent:
                stream.take_over_sent = True
                link.send(TakeOver(stream.number, epoch))

    def is_transferred(self, copy: LocalCopy) -> bool:
        """Whether the next start removes the messages of the own log, because another owner has them."""
        return copy.is_origin and self.is_decommissioning and self._file.record.is_transferred

    def origin_dropped(self) -> None:
        """Another owner has all that is pending here: the next start does not deliver it."""
        self._change(replace(self.record, is_transferred=True))

    def decommission_state(self) -> dict[str, Any]:
        """The content of GET /decommission."""
        owned = [(log, copy) for log in self.logs.values() for copy in log.copies if copy.is_owner]
        remaining = sum(count(log.delivered(copy)) for log, copy in owned)
        others = [copy for log in self.logs.values() for copy in log.copies if not copy.is_origin]
        done = self.is_decommissioning and self._file.record.is_transferred and not others
        waits = next((copy.waits_for for _, copy in owned if copy.waits_for), "")
        if not waits and others:
            waits = next(
                (copy.waits_for for copy in others if copy.waits_for), "other nodes to drop or move copies"
            )
        return {
            "decommissioning": self.is_decommissioning,
            "done": done,
            "waits_for": "" if done else waits,
            "logs": len(owned),
            "remaining": remaining,
            "transferred": sum(copy.yielded_count for _, copy in owned),
        }

    def yielded(self) -> int:
        """How many pending messages another owner delivers instead."""
        return sum(copy.yielded_count for log in self.logs.values() for copy in log.copies)

    # --- deleted topics ---

    def delete_topic(self, link: PeerLink, frame: DeleteTopic, position: int) -> None:
        """The origin has deleted a topic; its frame begins at this position of the connection."""
        log = self.logs.get(frame.origin)
        for copy in [] if log is None else log.unstreamed():
            topic = copy.topics.get(frame.name)
            if topic is not None and not delete_below(self.broker, topic, frame.below):
                self.to_checkpoint[topic] = None
                continue
            if topic is not None:
                del copy.topics[frame.name]
                self._forget_topic(topic)
                self._log(copy.origin).topic_removed(copy, frame.name)
                store = store_of(topic)
                if store is not None:
                    store.close()
            if copy.record is not None:
                link.unacknowledged.append(position)
                self._to_delete.append((copy, frame, link, position))

    def _begin_deletions(self) -> None:
        """Begin the jobs that rename folders of deleted topics, one at a time of each copy.

        Called once a second: a stream that begins right behind the frame finds the copy idle.
        """
        waiting, self._to_delete = self._to_delete, []
        for one in waiting:
            copy, frame, link, position = one
            if copy.record is None or copy.is_gone or copy.is_streamed:
                # The stream deletes it.
                link.unacknowledged.remove(position)
            elif copy.is_busy or copy.is_negotiating:
                self._to_delete.append(one)
            else:
                copy.is_busy = True
                self._jobs.append(
                    DeleteTopicOfCopy(copy, self.copies, frame.name, frame.below, link, position)
                )

    # --- time ---

    def tick(self, now_ns: int) -> None:
        """Do what is due; called some ten times a second."""
        suspended = bool(self._ticked_ns) and now_ns - self._ticked_ns > _SUSPENDED_NS
        self._ticked_ns = now_ns
        for link in list(self.links):
            link.tick(now_ns)
            if link.is_closed and link in self.links:
                self.links.remove(link)
        if suspended:
            self._ask_again(now_ns)
        for log in self.logs.values():
            for primary in log.primaries.values():
                self._want_checkpoints(primary)
        if now_ns < self._next_second_ns:
            return
        self._next_second_ns = now_ns + _S
        self._forget_silent()
        self._begin_deletions()
        self.broker.asks_holders = any(copy.old_ends for log in self.logs.values() for copy in log.copies)
        for log in list(self.logs.values()):
            log.tick(now_ns)
            if not log.copies:
                del self.logs[log.origin]
        for link in list(self.links):
            if link.is_up and link.connector:
                self._stream_to(link, now_ns)
                self._end_unwanted(link)
            link.sync()
        self._next_second_ns = min(
            (log.next_check_ns(now_ns) for log in self.logs.values()), default=self._next_second_ns
        )

    def _want_checkpoints(self, primary: Primary) -> None:
        """Have whole checkpoints of the wanted topics written in the next round."""
        wanted, primary.wants_checkpoint = primary.wants_checkpoint, {}
        for store in wanted:
            found = self._copy_of.get(store)
            topic = self.broker.topics.get(primary.name_of(store)) if found is None else found[2]
            if topic is not None and isinstance(store, TopicStore):
                store.checkpoints.begin_anew()
                topic.changed = True

    def _forget_silent(self) -> None:
        """Forget holders that were not heard for a week."""
        now_s = self._now_s()
        self._heard_s.update((link.peer, now_s) for link in self.links if link.is_up)
        wanted = self.wanted_peers()
        for log in list(self.logs.values()):
            for peer in log.holders:
                if peer not in wanted:
                    # The owner that streams into the copy says who holds the log.
                    self._heard_s[peer] = now_s
                elif now_s - self._heard_s.setdefault(peer, now_s) > _FORGET_AFTER_S:
                    self.forget_holder(log, peer)

    def _ask_again(self, now_ns: int) -> None:
        """After a suspension: others may have delivered the messages of this node."""
        self._warn("REPLICATION: this node was suspended, asking the holders of its logs")
        for log in self.logs.values():
            for exchange in log.exchanges.values():
                exchange.ask()
            for copy in log.copies:
                copy.since_ns = now_ns
                if copy.is_owner and copy.tells_state:
                    log.ask(copy, now_ns)

    def _end_unwanted(self, link: PeerLink) -> None:
        """End the streams to a node that is no replica any more, or is to hold no copies."""
        is_left = link.peer not in self.replicas and link.stream_of(self.primary) is not None
        if is_left or (link.peer_drains and self._has_better(link)):
            link.end("another replica was chosen")
        elif link.peer_accepts_none and link.streams:
            link.end("the replica accepts no copies")

    def _has_better(self, link: PeerLink) -> bool:
        """Whether a promoted copy is streamed to this peer, which drains, and others have all of it."""
        for log in self.logs.values():
            for copy, primary in log.primaries.items():
                stream = link.stream_of(primary)
                chosen = [] if copy.is_origin or stream is None else self._chosen(log, copy)
                others = {self.peer_of(one) for one in primary.streams if one.is_caught_up}
                if chosen and link.peer not in chosen and others.issuperset(chosen):
                    return True
        return False

    # --- shown to operators ---

    def shown(self, now_ns: int) -> dict[str, Any]:
        """The content of GET /replication."""
        return shown_node(self, now_ns)
