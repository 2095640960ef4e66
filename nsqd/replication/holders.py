"""The holders and epochs of all logs here: noted in `replication.json`, and in `copy.json` of each copy."""

from collections.abc import Iterable
from dataclasses import replace
from threading import Lock
from typing import Final

from nsqd.log.disk import Disk
from nsqd.replication.frames import Holder
from nsqd.replication.link import PeerLink
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.node_state import NodeJob, NodeState
from nsqd.replication.records import NodeRecord, NodeRecordFile

# A holder that was not heard for so long is forgotten.
_FORGET_AFTER_S: Final = 7 * 24 * 3600


class Holders:
    """See the module."""

    def __init__(self, node: NodeState, file: NodeRecordFile) -> None:
        """*file* is loaded."""
        # The node record as it is to be; the file has what is durable.
        self.record = file.record
        self._node = node
        self._file = file
        # The file is written by one thread at a time.
        self._saving = Lock()
        # Copies whose records have changed.
        self._to_save: dict[LocalCopy, None] = {}
        # When each holder was last heard, or first known, in unix seconds.
        self._heard_s: dict[bytes, int] = {}
        own = node.own_copy
        own.epoch = file.record.epoch
        own.seen = max(own.epoch, file.record.highest_epoch)
        own.holders = {one.identity: one.address for one in file.record.holders}

    # --- records ---

    def change(self, record: NodeRecord) -> None:
        """Let this be the node record, and save it soon."""
        if record != self.record:
            self.record = record
            self._to_save[self._node.own_copy] = None

    def _changed(self, copy: LocalCopy) -> None:
        """Save the holders and the highest epoch of a copy soon."""
        if copy.is_origin:
            holders = tuple(Holder(*one) for one in copy.holders.items())
            self.change(replace(self.record, holders=holders, highest_epoch=copy.seen))
        else:
            self._to_save[copy] = None

    def save(self, copy: LocalCopy) -> None:
        """Write the record of a copy; for any thread. Raises OSError."""
        if copy.is_origin:
            with self._saving:
                self._file.save(self.record)
        else:
            self._node.copies.save(copy)

    def take_jobs(self) -> list[NodeJob]:
        """All jobs to be run now, in any thread."""
        to_save, self._to_save = self._to_save, {}
        for copy in to_save:
            self._start_saving(copy)
        jobs, self._node.waiting_jobs = self._node.waiting_jobs, []
        return jobs

    def _start_saving(self, copy: LocalCopy) -> None:
        def run(_disk: Disk) -> None:
            self.save(copy)

        def ended(error: Exception | None, now_ns: int) -> None:
            if error is None:
                copy.problems.pop("", None)
                return
            self._node.job_failed(copy, error, now_ns)
            if copy.is_origin:
                self._to_save[copy] = None

        self._node.start(run, ended)

    @property
    def is_transferred(self) -> bool:
        """Whether the next start removes the messages of the own log, because another owner has them."""
        return self._node.is_decommissioning and self._file.record.is_transferred

    # --- holders ---

    def set_replicas(self, replicas: tuple[Holder, ...]) -> None:
        """These nodes are the replicas from now on, the best first."""
        self._node.replicas = [one.identity for one in replicas if one.identity]
        own = self._node.own_copy
        own.holders |= {one.identity: one.address for one in replicas if one.identity}
        self.change(replace(self.record, replicas=replicas))
        self._changed(own)

    def add_replica(self, copy: LocalCopy, link: PeerLink) -> None:
        """A stream of this copy is about to begin over a connection."""
        if copy.holders.get(link.peer) != link.address:
            copy.holders[link.peer] = link.address
            self._changed(copy)

    def learn(
        self, copies: Iterable[LocalCopy], without_copy: set[bytes], peer: Holder, others: Iterable[Holder]
    ) -> None:
        """Remember who holds copies of a log: a *peer*, whose address is right, and others that it knows."""
        found = {one.identity: one.address for one in (*others, peer)}
        for copy in copies:
            holders = copy.holders
            news = {
                who: address
                for who, address in found.items()
                if who not in (self._node.identity, *without_copy)
                and (
                    who not in holders
                    or (address != holders[who] and (who == peer.identity or not holders[who]))
                )
            }
            if news:
                holders |= news
                self._changed(copy)

    def forget(self, copies: Iterable[LocalCopy], peer: bytes) -> None:
        """A node has no copy of a log."""
        for copy in copies:
            if copy.is_origin and peer in self._node.replicas:
                continue
            if copy.is_origin:
                self.change(self.record.without_holder(peer))
            if copy.holders.pop(peer, None) is not None:
                self._changed(copy)

    def silent(self, peers: Iterable[bytes], wanted: Iterable[bytes]) -> list[bytes]:
        """Those of the peers that were not heard for a week, although a connection to them is wanted."""
        now_s = self._node.now_s()
        self._heard_s.update((link.peer, now_s) for link in self._node.links if link.is_up)
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
