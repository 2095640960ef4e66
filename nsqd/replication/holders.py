"""The holders and epochs of all logs here: noted in `replication.json`, and in `copy.json` of each copy."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

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
        self._is_saving = False
        self._save_again = False
        # Why the record is not saved; one warning is given for each reason.
        self._problem = ""
        # Copies whose records have changed.
        self._to_save: dict[LocalCopy, None] = {}
        # When each holder was last heard, or first known, in unix seconds.
        self._heard_s: dict[bytes, int] = {}

    # --- records ---

    def change(self, record: NodeRecord) -> None:
        """Let this be the node record, and save it soon."""
        if record != self.record:
            self.record = record
            self._save_again = True

    def take_jobs(self) -> list[NodeJob]:
        """All jobs to be run now, in any thread."""
        node = self._node
        if self._save_again and not self._is_saving:
            self._save_again, self._is_saving = False, True
            record = self.record
            node.start(
                lambda _disk: self._file.save(record), lambda error, _now_ns: self._saved(record, error)
            )
        for copy in self._to_save:
            self._save(copy)
        self._to_save.clear()
        jobs, node.waiting_jobs = node.waiting_jobs, []
        return jobs

    def _save(self, copy: LocalCopy) -> None:
        def ended(error: Exception | None, now_ns: int) -> None:
            if error is None:
                copy.problems.pop("", None)
            else:
                self._node.job_failed(copy, error, now_ns)

        self._node.start(lambda _disk: self._node.copies.save(copy.stored), ended)

    def _saved(self, record: NodeRecord, error: Exception | None) -> None:
        """The node record was saved, or not; an epoch that was raised counts now."""
        self._is_saving = False
        own = self._node.own_copy
        problem = "" if error is None else str(error) or type(error).__name__
        if problem and problem != self._problem:
            self._node.warn(f"REPLICATION: failed to save replication.json, will try again - {problem}")
        self._problem = problem
        if problem:
            self._save_again = True
        elif record.epoch > own.own_epoch:
            own.own_epoch, own.is_busy = record.epoch, False
            own.own_seen = max(own.own_seen, own.own_epoch)

    @property
    def is_transferred(self) -> bool:
        """Whether the next start removes the messages of the own log, because another owner has them."""
        return self._node.is_decommissioning and self._file.record.is_transferred

    # --- holders ---

    def of(self, copy: LocalCopy) -> dict[bytes, str]:
        """The other holders of a log, as a copy here knows them."""
        if copy.record is not None:
            return copy.record.holders
        return {one.identity: one.address for one in self.record.holders}

    def set_replicas(self, replicas: tuple[Holder, ...]) -> None:
        """These nodes are the replicas from now on, the best first."""
        self._node.replicas = [one.identity for one in replicas if one.identity]
        record = replace(self.record, replicas=replicas)
        for one in replicas:
            if one.identity:
                record = record.with_holder(one.identity, one.address)
        self.change(record)

    def add_replica(self, copy: LocalCopy, link: PeerLink) -> None:
        """A stream of this copy is about to begin over a connection."""
        if copy.record is None:
            self.change(self.record.with_holder(link.peer, link.address))
        elif copy.record.holders.get(link.peer) != link.address:
            copy.record.holders[link.peer] = link.address
            self._to_save[copy] = None

    def learn(
        self, copies: Iterable[LocalCopy], without_copy: set[bytes], peer: Holder, others: Iterable[Holder]
    ) -> None:
        """Remember who holds copies of a log: a *peer*, whose address is right, and others that it knows."""
        found = {one.identity: one.address for one in (*others, peer)}
        for copy in copies:
            holders = self.of(copy)
            news = {
                who: address
                for who, address in found.items()
                if who not in (self._node.identity, *without_copy)
                and (
                    who not in holders
                    or (address != holders[who] and (who == peer.identity or not holders[who]))
                )
            }
            if not news:
                continue
            if copy.record is None:
                record = self.record
                for who, address in news.items():
                    record = record.with_holder(who, address)
                self.change(record)
            else:
                copy.record.holders |= news
                self._to_save[copy] = None

    def forget(self, copies: Iterable[LocalCopy], peer: bytes) -> None:
        """A node has no copy of a log."""
        for copy in copies:
            if copy.record is None:
                if peer not in self._node.replicas:
                    self.change(self.record.without_holder(peer))
            elif copy.record.holders.pop(peer, None) is not None:
                self._to_save[copy] = None

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
            if epoch <= copy.seen:
                continue
            if copy.record is None:
                copy.own_seen = epoch
                self.change(replace(self.record, highest_epoch=epoch))
            else:
                copy.record.seen = epoch
                self._to_save[copy] = None
