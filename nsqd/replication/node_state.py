"""What the parts of a node's replication share: its identity, its connections, and work for the driver."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from nsqd.engine.broker import Broker
from nsqd.engine.topic import Topic
from nsqd.log.disk import Disk, words_of
from nsqd.replication.copies import Copies
from nsqd.replication.frames import REFUSALS, Draining
from nsqd.replication.handshake import Incarnations
from nsqd.replication.link import PeerLink
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_stream import ReplicaSettings
from nsqd.replication.primary import Replicated
from nsqd.storage.data_path import DataPath

_S: Final = 1_000_000_000
_RETRY_NS: Final = 5 * _S


@dataclass(slots=True)
class NodeJob:
    """Work for any thread, and what is called with its error, if it had one, and the time of its end."""

    run: Callable[[Disk], None]
    ended: Callable[[Exception | None, int], None]
    # The log to which the rules are to be applied then; empty for none.
    origin: bytes = b""


class NodeState:
    """See the module."""

    def __init__(
        self,
        settings: ReplicaSettings,
        identity: bytes,
        address: str,
        broker: Broker,
        data: DataPath,
        copies: Copies,
        now_s: Callable[[], int],
        *,
        info: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """*now_s* returns unix seconds; *info* and *warn* get sentences for the log."""
        self.settings = settings
        self.identity = identity
        # Where this node is found.
        self.address = address
        self.broker = broker
        self.data = data
        self.copies = copies
        self.now_s = now_s
        self.info = info
        self.warn = warn
        # This node's own log.
        self.own_copy = LocalCopy(identity, identity, 0, data.path)
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
        self.waiting_jobs: list[NodeJob] = []
        # Topics whose state was changed by another copy and that the checkpointer does not visit.
        self.to_checkpoint: dict[Topic, None] = {}
        # A note was staged, or messages became deliverable.
        self.wants_turn = False
        # Checks that wait for an fsync of everything written here.
        self.local_syncs: list[Replicated] = []
        # The node id of each identity that has proved its membership.
        self.node_ids: dict[bytes, int] = {}
        # The last `Draining` of each peer, with the token of its incarnation.
        self._draining: dict[bytes, tuple[bytes, Draining]] = {}

    # --- jobs ---

    def start(
        self,
        run: Callable[[Disk], None],
        ended: Callable[[Exception | None, int], None],
        origin: bytes = b"",
    ) -> None:
        """Have a job run soon, in any thread; *origin* is that of the log to which it belongs."""
        self.waiting_jobs.append(NodeJob(run, ended, origin))

    def job_failed(self, copy: LocalCopy, error: Exception, now_ns: int) -> str:
        """A job on a copy has failed and may be tried again after a while; returns the reason in words."""
        reason = words_of(error) if isinstance(error, OSError) else str(error) or type(error).__name__
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

    def take_draining(self, link: PeerLink, frame: Draining) -> None:
        """A peer drains, or does not any more."""
        link.peer_drains, link.peer_accepts_none = frame.draining, frame.fewer_copies
        self._draining[link.peer] = (link.token, frame)

    def remember_draining(self, link: PeerLink) -> None:
        """Apply the last `Draining` of this incarnation of the peer to a new connection."""
        token, frame = self._draining.get(link.peer, (b"", None))
        if frame is not None and token == link.token:
            self.take_draining(link, frame)
