"""The replication status of an nsqd, as typed records read from its ``/replication``."""

from typing import Final

import msgspec

from nsqcore.cluster.numbers import Int64, Seconds

UNREACHABLE: Final = "unreachable"
STALLED: Final = "stalled"
CATCHING_UP: Final = "catching_up"
IN_SYNC: Final = "in_sync"
CAUGHT_UP: Final = "caught_up"

REPLICA: Final = "replica"
PROMOTED: Final = "promoted"
STATE_ONLY: Final = "state_only"


class ReplicaStatus(msgspec.Struct, frozen=True):
    """One replica of a node. The lag and the counts are unknown while it is unreachable."""

    identity: str = ""
    address: str = ""
    state: str = ""
    topics: Int64 = 0
    in_sync_topics: Int64 = 0
    caught_up_topics: Int64 = 0
    lag_bytes: Int64 = 0
    lag_seconds: Seconds = 0.0
    problem: str = ""

    @property
    def is_connected(self) -> bool:
        return self.state in {CATCHING_UP, IN_SYNC, CAUGHT_UP, STALLED}

    @property
    def is_in_sync(self) -> bool:
        """Whether publishes to all topics of the node wait for it."""
        return self.state in {IN_SYNC, CAUGHT_UP}


class CopyStatus(msgspec.Struct, frozen=True):
    """A copy on a node of the log of another node, its origin.

    ``pending`` counts the messages that this node delivers, ``yielded`` those that another owner delivers.
    ``problems`` has the topics that cannot be read, and why.
    """

    origin: str = ""
    number: Int64 = 0
    state: str = ""
    epoch: Int64 = 0
    owner: str = ""
    address: str = ""
    connected: bool = False
    topics: Int64 = 0
    pending: Int64 = 0
    yielded: Int64 = 0
    fully_replicated: bool = False
    waits_for: str = ""
    holders: tuple[str, ...] = ()
    problems: dict[str, str] = {}

    @property
    def is_owned(self) -> bool:
        """Whether the node delivers messages of this copy, or has delivered all of them."""
        return self.state in {PROMOTED, STATE_ONLY}


class NodeReplication(msgspec.Struct, frozen=True):
    """The replicas of one node, and the copies on it."""

    identity: str = ""
    incarnation: Int64 = 0
    epoch: Int64 = 0
    replicas_wanted: Int64 = 0
    fully_replicated: bool = False
    replicas: tuple[ReplicaStatus, ...] = ()
    copies: tuple[CopyStatus, ...] = ()


read_replication = msgspec.json.Decoder(NodeReplication).decode
