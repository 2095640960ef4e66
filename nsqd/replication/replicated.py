"""Whether the owners of one log on this node are fully replicated. No socket, no clock."""

from nsqd.replication.dropping import LogOfCopies
from nsqd.replication.frames import CopyId, CopyKind
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_stream import LogStream


class Replicated:
    """The check whether an owner is fully replicated: all is synced here and at caught-up replicas."""

    __slots__ = ("began_ns", "is_done", "positions", "streams", "synced_here")

    def __init__(self, streams: list[LogStream], now_ns: int, *, synced_here: bool) -> None:
        self.streams = streams
        self.began_ns = now_ns
        self.synced_here = synced_here
        self.positions = [(one.sender, one.sender.sent) for one in streams]
        self.is_done = False
        for sender, _ in self.positions:
            sender.request_sync()

    def look(self) -> bool:
        """Whether all that existed at the beginning is durable here and there."""
        if not self.is_done:
            there = all(sender.synced >= position for sender, position in self.positions)
            self.is_done = self.synced_here and there
        return self.is_done


class ReplicationChecks:
    """See the module."""

    def __init__(self, log: LogOfCopies) -> None:
        self._log = log
        self._checks: dict[LocalCopy, Replicated] = {}

    def forget(self, copy: LocalCopy) -> None:
        """The copy is gone."""
        self._checks.pop(copy, None)

    def check(self, copy: LocalCopy, now_ns: int) -> None:
        """Find out whether all that this owner delivers is synced here and at enough replicas."""
        primary = self._log.primaries.get(copy)
        streams = [] if primary is None else [one for one in primary.streams if one.is_caught_up]
        check = self._checks.get(copy)
        if len(streams) < self._log.node.settings.replicas:
            self._checks.pop(copy, None)
            return
        if check is not None and not set(check.streams) <= set(streams):
            check = None
        if check is not None:
            check.look()
            latest = max((one.opened_ns for one in self._log.exchanges.values()), default=0)
            if not check.is_done or check.began_ns > latest:
                return
        if self._log.exchanges:
            check = self._checks[copy] = Replicated(streams, now_ns, synced_here=not copy.is_origin)
            if copy.is_origin:
                self._log.node.request_local_sync(check)

    def counted(self, copy: LocalCopy, since_ns: int, now_ns: int) -> tuple[CopyId, ...] | None:
        """The replicas because of which this owner is fully replicated since that time; None if it is not."""
        check = self._checks.get(copy)
        if not copy.is_owner or copy.asks(now_ns) or check is None or not check.is_done:
            return None
        if check.began_ns <= since_ns:
            return None
        found = []
        for stream in check.streams:
            peer = self._log.node.peer_of(stream)
            ids = [
                CopyId(node, number)
                for (node, number), one in self._log.known.items()
                if node == peer and one.kind == CopyKind.STREAMED and one.owner == self._log.node.identity
            ]
            if not ids:
                return None
            found += ids
        return tuple(sorted(found, key=lambda one: (one.node, one.number)))
