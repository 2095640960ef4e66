"""The streams between this node and its peers: to the replicas of its logs, and into the copies here."""

from nsqd.replication.frames import Holder, Log, Refuse, Snapshot
from nsqd.replication.incoming import IncomingLog
from nsqd.replication.jobs import Jobs
from nsqd.replication.link import PeerLink
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_state import Logs, LogState
from nsqd.replication.node_state import NodeState
from nsqd.replication.rules import apply_rules

_IS_READING = "the replica is reading its copy, try again"


class Streams:
    """See the module."""

    def __init__(self, node: NodeState, jobs: Jobs, logs: Logs) -> None:
        self._node = node
        self._jobs = jobs
        self._logs = logs

    # --- to replicas ---

    def begin(self, link: PeerLink, now_ns: int) -> None:
        """Stream to a peer each log of which it is to be a replica."""
        for log in list(self._logs.values()):
            for copy, primary in list(log.primaries.items()):
                if (
                    link.is_closed
                    or not link.peer_accepts
                    or copy.is_busy
                    or link.stream_of(primary) is not None
                ):
                    continue
                chosen = self._chosen(log, copy)
                if link.peer in chosen:
                    self._node.add_holder(copy, link)
                    log.send_status(log.exchange(link, now_ns), now_ns)
                    primary.epoch = copy.epoch
                    holders = {**copy.holders, self._node.identity: self._node.address}
                    primary.holders = tuple(
                        Holder(*one) for one in sorted(holders.items()) if one[0] != link.peer
                    )
                    link.begin_stream(primary, chosen.index(link.peer), now_ns)

    def _chosen(self, log: LogState, copy: LocalCopy) -> list[bytes]:
        """The replicas of an owner here, the first of which takes over first."""
        node = self._node
        if copy.is_origin:
            return [] if self._node.record.is_transferred else node.replicas
        if not log.pending(copy):
            return []
        links = {one.peer: one for one in node.links if one.is_up and one.connector}
        primary = log.primaries[copy]
        streaming = [peer for peer, link in links.items() if link.stream_of(primary) is not None]
        order = dict.fromkeys((*streaming, *(peer for peer, _ in log.peer_copies), *node.replicas))
        found = sorted((one for one in order if one in links), key=lambda one: links[one].peer_drains)
        return found[: node.settings.replicas]

    def end_unwanted(self, link: PeerLink) -> None:
        """End the streams to a node that is no replica any more, or is to hold no copies."""
        own = self._logs[self._node.identity].primaries[self._node.own_copy]
        is_left = link.peer not in self._node.replicas and link.stream_of(own) is not None
        if is_left or (link.peer_drains and self._has_better(link)):
            link.end("another replica was chosen")
        elif link.streams and not link.peer_accepts:
            link.end("the replica accepts no copies")

    def _has_better(self, link: PeerLink) -> bool:
        """Whether a promoted copy is streamed to this peer, which drains, and others have all of it."""
        for log in self._logs.values():
            for copy, primary in log.primaries.items():
                stream = link.stream_of(primary)
                chosen = [] if copy.is_origin or stream is None else self._chosen(log, copy)
                others = {one.peer for one in primary.streams if one.is_caught_up}
                if chosen and link.peer not in chosen and others.issuperset(chosen):
                    return True
        return False

    # --- from primaries ---

    def candidate_for(self, link: PeerLink, frame: Log) -> LocalCopy | None:
        """The copy that a stream may resume; None for a new one. Refuses while a thread uses it."""
        log = self._logs[frame.origin]
        exchange = log.exchange(link, link.heard_ns)
        copies = [
            one
            for one in log.copies
            if not (one.is_owner or one.is_streamed or one.is_negotiating or one.take_over_epoch)
            and one.epoch <= frame.epoch
        ]
        if not copies:
            if not self._node.settings.accept:
                link.refuse(Refuse.DISK, "no replicas are accepted here: --accept-replicas=false")
            return None
        newest = max(copies, key=lambda one: one.number)
        if newest.is_busy:
            link.refuse(Refuse.BUSY, _IS_READING)
        elif newest.opened and not newest.is_open:
            self._jobs.open(log, newest)
            link.refuse(Refuse.BUSY, _IS_READING)
        else:
            newest.is_negotiating = True
            log.send_status(exchange, link.heard_ns)
        return newest

    def before(self, one: IncomingLog, frame: Snapshot) -> None:
        """A stream is about to enter a copy: nothing here uses its files any more."""
        copy = one.candidate if frame.resume else None
        if copy is not None and copy.is_open:
            for topic in copy.topics.values():
                self._jobs.close_topic(topic)
            copy.topics, copy.is_open = {}, False

    def began(self, link: PeerLink, one: IncomingLog, now_ns: int) -> None:
        """A stream has entered a copy, which may be new."""
        copy = one.copy
        if copy is None:
            return
        self._end_negotiation(one)
        log = self._logs[copy.origin]
        if copy not in log.copies:
            log.add(copy)
        copy.is_streamed = True
        copy.since_ns = copy.detached_ns = now_ns
        log.state_changed(copy)
        log.exchange(link, now_ns)

    def ended(self, link: PeerLink, now_ns: int) -> None:
        """A connection is gone, and with it the streams into copies here."""
        for one in link.incoming.values():
            self._end_negotiation(one)
            copy = one.copy
            if copy is not None:
                copy.is_streamed = False
                # The failover timeout counts from the last sign of the owner.
                copy.since_ns, copy.detached_ns = link.heard_ns, now_ns
                self._logs[copy.origin].state_changed(copy)

    def take_over(self, link: PeerLink, one: IncomingLog, epoch: int, now_ns: int) -> None:
        """The owner transfers a log to this node: its copy is promoted now."""
        copy = one.copy
        if copy is not None:
            copy.take_over_epoch = epoch
            self._node.info(
                f"REPLICATION({link.address}): taking over {one.log.origin.hex()[:8]} under epoch {epoch}"
            )
            link.end("the log is transferred to this node")
            apply_rules(self._logs[copy.origin], self._jobs, now_ns)

    def _end_negotiation(self, one: IncomingLog) -> None:
        if one.candidate is not None:
            one.candidate.is_negotiating = False
