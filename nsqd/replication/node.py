"""Replication of one node: its logs, copies and connections joined. No socket, no clock, no thread.

The driver calls :meth:`ReplicationNode.tick` ten times a second, makes the connections of
:meth:`ReplicationNode.wanted_peers`, and runs the jobs of :meth:`NodeState.take_jobs` in any thread.
"""

from dataclasses import replace
from typing import Any, Final

from nsqd.engine.topic import Topic
from nsqd.replication.deleted_topics import DeletedTopics
from nsqd.replication.exchange import no_copy
from nsqd.replication.frames import ChannelState, Holder, Status
from nsqd.replication.job import Job
from nsqd.replication.jobs import Jobs
from nsqd.replication.link import PeerLink, silence_ns
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_state import Logs
from nsqd.replication.node_state import NodeState
from nsqd.replication.primary import Primary
from nsqd.replication.rules import apply_rules, next_check_ns
from nsqd.replication.shown import decommission_json, node_json
from nsqd.replication.streams import Streams
from nsqd.replication.yielding import await_statuses, suspend
from nsqd.storage.slots import CheckpointJob
from nsqd.storage.topic_log import TopicLog, store_of

_S: Final = 1_000_000_000
# A pause of the event loop that is longer than this, or than half the silence after which peers end a
# connection, counts as a suspension (SIGSTOP, a frozen machine).
_SUSPENDED_NS: Final = 5 * _S


class ReplicationNode:
    """See the module."""

    def __init__(self, state: NodeState, jobs: Jobs) -> None:
        self.state = state
        self.jobs = jobs
        self.logs = Logs(state)
        self.settings, self.identity, self.copies = state.settings, state.identity, state.copies
        self.streams = Streams(state, jobs, self.logs)
        self.deleted = DeletedTopics(state, jobs, self.logs)
        self._own_log = self.logs[state.identity]
        self._ticked_ns = 0
        self._next_second_ns = 0

    # --- start ---

    def begin(self, now_ns: int) -> None:
        """Start with what is on disk, after the data path is loaded and before clients are served.

        Raises OSError.
        """
        own, broker = self.state.own_copy, self.state.broker
        own.topics = broker.topics
        own.is_open = True
        self._own_log.add(own)
        self.jobs.make_primary(self._own_log, own, self._replicas_of)
        for topic in broker.topics.values():
            self.topic_created(topic)
        for found in self.copies.scan():
            self._found(found, now_ns)
        await_statuses(self._own_log, own, now_ns)
        self._ticked_ns = now_ns

    def _found(self, copy: LocalCopy, now_ns: int) -> None:
        copy.since_ns = copy.detached_ns = now_ns
        log = self.logs[copy.origin]
        log.add(copy)
        if copy.promoted:
            copy.asks_until_ns = now_ns
            self.jobs.open(log, copy)

    def _replicas_of(self, name: str) -> int:
        topic = self.state.broker.topics.get(name)
        wanted = None if topic is None else topic.settings.replicas
        return self.settings.replicas if wanted is None else wanted

    # --- called by the write batch and the checkpointer ---

    @property
    def primary(self) -> Primary:
        """The stream of this node's own log."""
        return self._own_log.primaries[self.state.own_copy]

    def checkpointed(self, topic: Topic, store: TopicLog, job: CheckpointJob) -> None:
        """A checkpoint was written, of an own topic or of one of a copy."""
        found = self.jobs.copy_of.get(store)
        copy = self.state.own_copy if found is None else found[0]
        log = self.logs[copy.origin]
        primary = log.primaries.get(copy)
        if primary is not None:
            primary.checkpointed(store, job)
        self.state.to_checkpoint.pop(topic, None)
        log.checkpointed(copy, topic)

    def topic_created(self, topic: Topic) -> None:
        """An own topic was found at the start or made since; nothing new is appended to its log yet."""
        store = store_of(topic)
        if store is not None:
            self.primary.add(store, topic.name)

    def topic_deleted(self, topic: Topic) -> None:
        """An own topic was deleted, and with it its promoted copies."""
        store = store_of(topic)
        if store is not None:
            # The primary has removed it already if its files were deleted first.
            self.primary.remove(store)
            self.deleted.deleted(topic.name, store.segments.end)
        self.deleted.promoted(topic.promoted)

    # --- connections ---

    def wanted_peers(self) -> dict[bytes, str]:
        """The nodes to which this node connects, with the last known address of each."""
        addresses = {one.identity: one.address for one in self.state.record.replicas}
        wanted = {identity: addresses.get(identity, "") for identity in self.state.replicas}
        for log in self.logs.values():
            for copy in log.copies:
                if not copy.is_streamed:
                    wanted = copy.holders | wanted
        wanted.pop(self.identity, None)
        return wanted

    def set_replicas(self, replicas: tuple[Holder, ...]) -> None:
        """These nodes are the replicas from now on, the best first. Their streams begin in the next tick."""
        self.state.set_replicas(replicas)
        self._next_second_ns = 0

    def link_up(self, link: PeerLink, now_ns: int) -> None:
        """The peer has proved its membership."""
        self.state.end_earlier(link)
        self._forget_replaced(link)
        for log in list(self.logs.values()):
            if log.copies and (link.peer in log.all_holders or link.peer in log.exchanges):
                log.send_status(log.exchange(link, now_ns), now_ns)
        self.state.send_draining(link)
        if link.connector:
            self.deleted.send(link)

    def _forget_replaced(self, link: PeerLink) -> None:
        """Forget holders whose node id the peer has now: their data paths were replaced by the peer's."""
        hello, node_ids = link.hello, self.state.node_ids
        if hello is None:
            return
        for log in self.logs.values():
            for copy in log.copies:
                if copy.origin_node_id:
                    node_ids.setdefault(log.origin, copy.origin_node_id)
        node_ids[link.peer] = hello.node_id
        replaced = {one for one, node_id in node_ids.items() if node_id == hello.node_id} - {link.peer}
        for log in self.logs.values():
            for peer in replaced & log.all_holders.keys():
                self.state.info(f"REPLICATION({link.address}): replaces the node {peer.hex()[:8]}")
                log.has_no_copy(peer)
        for peer in replaced:
            del node_ids[peer]

    def link_ended(self, link: PeerLink) -> None:
        """A connection is gone."""
        self.streams.ended(link, max(self._ticked_ns, link.heard_ns))
        for log in self.logs.values():
            log.link_ended(link)
        if link in self.state.links:
            self.state.links.remove(link)

    def stream_began(self, link: PeerLink) -> None:
        """The replica has answered, and the stream has begun."""
        self.state.info(f"REPLICATION({link.address}): streaming to replica")

    def take_channel_state(self, link: PeerLink, frame: ChannelState) -> None:
        """Channel state of a copy of a peer; its status follows."""
        log = self.logs.get(frame.origin)
        exchange = None if log is None or not log.copies else log.exchange(link, link.heard_ns)
        if exchange is not None and exchange.link is link:
            exchange.take_state(frame)

    def take_status(self, link: PeerLink, frame: Status, now_ns: int) -> None:
        """The status of a copy of a peer."""
        log = self.logs.get(frame.origin)
        if log is None or not (log.copies or link.peer in log.exchanges):
            if frame.kind:
                link.send(no_copy(frame.origin, self.identity))
            return
        exchange = log.exchange(link, now_ns)
        if exchange.link is link:
            log.take_status(exchange, frame, now_ns)
        else:
            exchange.use_this_link()
        log.send_status(exchange, now_ns)

    # --- decommission ---

    def decommission(self, target: str, *, fewer_copies: bool) -> None:
        """Transfer all logs; refuse publishes from now on."""
        state = self.state
        state.is_decommissioning, state.target, state.fewer_copies = True, target, fewer_copies
        state.broker.draining = state.broker.decommissioning = True

    def cancel_decommission(self) -> None:
        """Retain the logs that were not transferred yet, and take publishes again."""
        state = self.state
        state.is_decommissioning, state.target = False, ""
        state.change_record(replace(state.record, is_transferred=False))
        broker = state.broker
        broker.draining = broker.drain_pending = broker.decommissioning = False
        for log in self.logs.values():
            for copy in log.copies:
                suspend(log, copy, suspended=False)

    # --- time ---

    def tick(self, now_ns: int) -> None:
        """Do the work that is due; called ten times a second."""
        links = self.state.links
        longest_ns = min(_SUSPENDED_NS, silence_ns(self.settings.failover_ns) // 2)
        suspended = bool(self._ticked_ns) and now_ns - self._ticked_ns > longest_ns
        self._ticked_ns = now_ns
        for link in list(links):
            link.tick(now_ns)
            if link.is_closed and link in links:
                links.remove(link)
        if suspended:
            self._ask_again(now_ns)
        for log in self.logs.values():
            for primary in log.primaries.values():
                self._want_checkpoints(primary)
        if now_ns < self._next_second_ns:
            return
        self._next_second_ns = now_ns + _S
        self._forget_silent()
        self.deleted.begin_jobs()
        self.state.broker.awaits_channel_state = any(
            copy.old_ends for log in self.logs.values() for copy in log.copies
        )
        for log in list(self.logs.values()):
            apply_rules(log, self.jobs, now_ns)
            if not log.copies:
                del self.logs[log.origin]
        for link in list(links):
            if link.is_up and link.connector:
                self.streams.begin(link, now_ns)
                self.streams.end_unwanted(link)
            link.sync()
        self._next_second_ns = min(
            (next_check_ns(log, now_ns) for log in self.logs.values()), default=self._next_second_ns
        )

    def _want_checkpoints(self, primary: Primary) -> None:
        """Have whole checkpoints of the wanted topics written in the next round."""
        wanted, primary.wants_checkpoint = primary.wants_checkpoint, {}
        for store in wanted:
            found = self.jobs.copy_of.get(store)
            topic = self.state.broker.topics.get(primary.name_of(store)) if found is None else found[1]
            if topic is not None and isinstance(store, TopicLog):
                store.checkpoints.restart_chains()
                topic.changed = True
                if topic.origin:
                    # The checkpointer does not visit a deleted one.
                    self.state.to_checkpoint[topic] = None

    def _forget_silent(self) -> None:
        """Forget holders that have sent nothing for a week."""
        wanted = self.wanted_peers()
        for log in list(self.logs.values()):
            for peer in self.state.silent_holders(log.all_holders, wanted):
                self.state.forget_holder(log.copies, peer)

    def _ask_again(self, now_ns: int) -> None:
        """After a suspension: others may have delivered the messages of this node."""
        self.state.warn("REPLICATION: this node was suspended, asking the holders of its logs")
        for log in self.logs.values():
            for exchange in log.exchanges.values():
                exchange.request_full_state()
            for copy in log.copies:
                copy.since_ns = now_ns
                if copy.is_owner and copy.has_state:
                    await_statuses(log, copy, now_ns)

    def job_ended(self, job: Job, error: Exception | None, now_ns: int) -> None:
        """A job has run, or failed."""
        job.ended(error, now_ns)
        log = self.logs.get(job.origin)
        if log is not None:
            apply_rules(log, self.jobs, now_ns)

    # --- shown to operators ---

    def yielded(self) -> int:
        """How many pending messages another owner delivers instead."""
        return sum(copy.yielded_count for log in self.logs.values() for copy in log.copies)

    def to_json(self, now_ns: int) -> dict[str, Any]:
        """The content of GET /replication."""
        return node_json(self.state, self.logs, now_ns)

    def decommission_state(self) -> dict[str, Any]:
        """The content of GET /decommission."""
        return decommission_json(self.state, self.logs)
