"""What an nsqd says about copies, as typed records read from its ``/carried``."""

import msgspec

from nsqcore.cluster.numbers import Int64, Seconds


class KeeperSeen(msgspec.Struct, frozen=True):
    """One keeper of a node: ``linked_since`` is in seconds since 1970, 0 while its word does not count."""

    address: str = ""
    connected: bool = False
    linked_since: Seconds = 0.0
    stalled: bool = False
    problem: str = ""
    behind_bytes: Int64 = 0
    behind_seconds: Seconds = 0.0
    topics: Int64 = 0
    linked_topics: Int64 = 0
    filled_topics: Int64 = 0

    @property
    def is_whole(self) -> bool:
        """Whether its copies count for all topics of the node."""
        return self.connected and not self.stalled and self.linked_topics == self.topics


class KeptSeen(msgspec.Struct, frozen=True):
    """The copy that a node keeps of another node; ``owed`` are the messages consumers get from it there."""

    identity: str = ""
    appointment: Int64 = 0
    connected: bool = False
    linked_since: Seconds = 0.0
    address: str = ""
    topics: tuple[str, ...] = ()
    linked_topics: Int64 = 0
    filled_topics: Int64 = 0
    phase: str = "kept"
    owed: Int64 = 0
    # Topics that cannot be read, and why.
    problems: dict[str, str] = {}


class CarriedCopies(msgspec.Struct, frozen=True):
    """The keepers of one node, and the copies that it keeps of others."""

    kept_by: tuple[KeeperSeen, ...] = ()
    keeps: tuple[KeptSeen, ...] = ()


read_copies = msgspec.json.Decoder(CarriedCopies).decode
