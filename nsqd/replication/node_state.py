"""The state that the parts of a node share: identity, connections, records, and work for the driver."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from threading import Lock
from typing import Final

from nsqd.engine.broker import Broker
from nsqd.engine.topic import Topic
from nsqd.log.disk import Disk, error_text
from nsqd.replication.copies import Copies
from nsqd.replication.frames import REFUSALS, Draining, Holder
from nsqd.replication.handshake import Incarnations
from nsqd.replication.job import Job
from nsqd.replication.link import PeerLink
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_stream import ReplicaSettings
from nsqd.replication.primary import Replicated
from nsqd.replication.records import NodeRecord, NodeRecordFile
from nsqd.storage.data_path import DataPath

_S: Final = 1_000_000_000
_RETRY_NS: Final = 5 * _S
# A holder that has sent nothing for so long is forgotten.
_FORGET_AFTER_S: Final = 7 * 24 * 3600


class NodeState:
    """See the module."""

    def __init__(
        self,
        settings: ReplicaSettings,
        file: NodeRecordFile,
        address: str,
        broker: Broker,
        data: DataPath,
        copies: Copies,
        now_s: Callable[[], int],
        *,
        info: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """*file* is loaded; *now_s* returns unix seconds; *info* and *warn* get sentences for the log."""
        self.settings = settings
        # The next node record; the file has the durable one.
        self.record = file.record
        self.identity = identity = file.record.identity
        # The address of this node.
        self.address = address
        self.broker = broker
        self.data = data
        self.copies = copies
        self.now_s = now_s
        self.info = info
        self.warn = warn
        # This node's own log.
        self.own_copy = own = LocalCopy(identity, identity, 0, data.path)
        own.epoch = file.record.epoch
        own.seen = max(own.epoch, file.record.highest_epoch)
        own.holders = {one.identity: one.address for one in file.record.holders}
        self.incarnations = Incarnations()
        self.links: list[PeerLink] = []
        # The identities of this node's replicas, the best first.
        self.replicas: list[bytes] = []
        self.is_draining = False
        # All logs are transferred to other nodes; to the node at that address, if one is given.
        self.is_decommissioning = False
        self.fewer_copies = False
        self.target = ""
        self.refusals: Counter[str] = Counter()
        # Jobs to be run, in any thread.
        self.waiting_jobs: list[Job] = []
        # Topics whose state was changed by another replica and that the checkpointer does not visit.
        self.to_checkpoint: dict[Topic, None] = {}
        # A note was staged, or messages became deliverable.
        self.wants_turn = False
        # Checks that wait for an fsync of everything written here.
        self.local_syncs: list[Replicated] = []
        # The node id of each identity that has proved its membership.
        self.node_ids: dict[bytes, int] = {}
        self._file = file
        # The file is written by one thread at a time.
        self._saving = Lock()
        # Copies whose records have changed.
        self._to_save: dict[LocalCopy, None] = {}
        # When each holder was last heard, or first known, in unix seconds.
        self._heard_s: dict[bytes, int] = {}

    # --- jobs ---

    def start(
        self,
        run: Callable[[Disk], None],
        ended: Callable[[Exception | None, int], None],
        origin: bytes = b"",
    ) -> None:
        """Have a job run soon, in any thread; *origin* is that of the log to which it belongs."""
        self.waiting_jobs.append(Job(run, ended, origin))

    def job_failed(self, copy: LocalCopy, error: Exception, now_ns: int) -> str:
        """A job on a copy has failed and may be tried again after a while; returns the reason in words."""
        reason = error_text(error) if isinstance(error, OSError) else str(error) or type(error).__name__
        copy.retry_ns = now_ns + _RETRY_NS
        if copy.problems.get("") != reason:
            copy.problems[""] = reason
            what = f"the copy {copy.number} of {copy.origin.hex()[:8]} failed"
            self.warn(
                f"REPLICATION: {'failed to save replication.json' if copy.is_origin else what} - {reason}"
            )
        return reason

    # --- connections ---

    def link_to(self, peer: bytes) -> PeerLink | None:
        """A connection to that peer; the one that this node made, if there are two."""
        return max(self.links_to(peer), key=lambda one: one.connector, default=None)

    def links_to(self, peer: bytes) -> list[PeerLink]:
        """The connections to that peer: one that this node made, and one that the peer made."""
        return [one for one in self.links if one.is_up and one.peer == peer]

    def end_earlier(self, link: PeerLink) -> None:
        """End connections to the same peer that a new one replaces."""
        for other in self.links_to(link.peer):
            if other is not link and (other.connector == link.connector or other.token != link.token):
                # The later connection, or the later incarnation, ends the earlier one.
                other.end("the peer has connected again")

    def refused(self, code: int) -> None:
        """Count a refusal."""
        self.refusals[REFUSALS.get(code, str(code))] += 1

    # --- draining ---

    def set_draining(self, *, draining: bool) -> None:
        """Send primaries whether to choose another replica: this node drains, or has no room."""
        self.is_draining = draining
        for link in self.links:
            self.send_draining(link)

    def send_draining(self, link: PeerLink) -> None:
        """Send a primary the frame `Draining` if it changes something."""
        frame = Draining(self.is_draining, self.is_decommissioning and self.fewer_copies)
        if link.is_up and not link.connector and frame != link.sent_draining:
            link.sent_draining = frame
            link.send(frame)

    # --- records ---

    def change_record(self, record: NodeRecord) -> None:
        """Let this be the node record, and save it soon."""
        if record != self.record:
            self.record = record
            self._to_save[self.own_copy] = None

    def _changed(self, copy: LocalCopy) -> None:
        """Save the holders and the highest epoch of a copy soon."""
        if copy.is_origin:
            holders = tuple(Holder(*one) for one in copy.holders.items())
            self.change_record(replace(self.record, holders=holders, highest_epoch=copy.seen))
        else:
            self._to_save[copy] = None

    def save(self, copy: LocalCopy) -> None:
        """Write the record of a copy; for any thread. Raises OSError."""
        if copy.is_origin:
            with self._saving:
                self._file.save(self.record)
        else:
            self.copies.save(copy)

    def take_jobs(self) -> list[Job]:
        """All jobs to be run now, in any thread."""
        to_save, self._to_save = self._to_save, {}
        for copy in to_save:
            self._start_saving(copy)
        jobs, self.waiting_jobs = self.waiting_jobs, []
        return jobs

    def _start_saving(self, copy: LocalCopy) -> None:
        def run(_disk: Disk) -> None:
            self.save(copy)

        def ended(error: Exception | None, now_ns: int) -> None:
            if error is None:
                copy.problems.pop("", None)
                return
            self.job_failed(copy, error, now_ns)
            if copy.is_origin:
                self._to_save[copy] = None

        self.start(run, ended)

    @property
    def is_transferred(self) -> bool:
        """Whether the next start removes the messages of the own log, because another owner has them."""
        return self.is_decommissioning and self._file.record.is_transferred

    # --- holders ---

    def set_replicas(self, replicas: tuple[Holder, ...]) -> None:
        """These nodes are the replicas from now on, the best first."""
        self.replicas = [one.identity for one in replicas]
        own = self.own_copy
        own.holders |= {one.identity: one.address for one in replicas}
        self.change_record(replace(self.record, replicas=replicas))
        self._changed(own)

    def add_holder(self, copy: LocalCopy, link: PeerLink) -> None:
        """A stream of this copy is about to begin over a connection."""
        if copy.holders.get(link.peer) != link.address:
            copy.holders[link.peer] = link.address
            self._changed(copy)

    def learn_holders(
        self, copies: Iterable[LocalCopy], without_copy: set[bytes], peer: Holder, others: Iterable[Holder]
    ) -> None:
        """Remember the holders of a log: a *peer*, whose address is right, and others that it knows."""
        found = {one.identity: one.address for one in (*others, peer)}
        for copy in copies:
            holders = copy.holders
            news = {
                who: address
                for who, address in found.items()
                if who not in (self.identity, *without_copy)
                and (
                    who not in holders
                    or (address != holders[who] and (who == peer.identity or not holders[who]))
                )
            }
            if news:
                holders |= news
                self._changed(copy)

    def forget_holder(self, copies: Iterable[LocalCopy], peer: bytes) -> None:
        """A node has no copy of a log."""
        for copy in copies:
            if copy.is_origin and peer in self.replicas:
                continue
            if copy.is_origin:
                self.change_record(self.record.without_holder(peer))
            if copy.holders.pop(peer, None) is not None:
                self._changed(copy)

    def silent_holders(self, peers: Iterable[bytes], wanted: Iterable[bytes]) -> list[bytes]:
        """The peers that have sent nothing for a week, although a connection to them is wanted."""
        now_s = self.now_s()
        self._heard_s.update((link.peer, now_s) for link in self.links if link.is_up)
        found = []
        for peer in peers:
            if peer not in wanted:
                # The owner that streams into the copy sends the holders of the log.
                self._heard_s[peer] = now_s
            elif now_s - self._heard_s.setdefault(peer, now_s) > _FORGET_AFTER_S:
                found.append(peer)
        return found

    # --- epochs ---

    def see_epoch(self, copies: Iterable[LocalCopy], epoch: int) -> None:
        """Remember the highest epoch."""
        for copy in copies:
            if epoch > copy.seen:
                copy.seen = epoch
                self._changed(copy)
