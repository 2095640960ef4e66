"""What an nsqd says about copies, as typed records read from its ``/carried``."""

import msgspec


class KeeperSeen(msgspec.Struct, frozen=True):
    """One keeper of a node: ``linked_since`` is in seconds since 1970, 0 while its word does not count."""

    address: str = ""
    connected: bool = False
    linked_since: float = 0.0
    stalled: bool = False
    problem: str = ""
    behind_bytes: int = 0
    behind_seconds: float = 0.0
    topics: int = 0
    linked_topics: int = 0
    filled_topics: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether its copies count for all topics of the node."""
        return self.connected and not self.stalled and self.linked_topics == self.topics


class KeptSeen(msgspec.Struct, frozen=True):
    """The copy that a node keeps of another node; ``owed`` are the messages consumers get from it there."""

    identity: str = ""
    appointment: int = 0
    connected: bool = False
    linked_since: float = 0.0
    address: str = ""
    topics: tuple[str, ...] = ()
    linked_topics: int = 0
    filled_topics: int = 0
    phase: str = "kept"
    owed: int = 0
    # Topics that cannot be read, and why.
    problems: dict[str, str] = {}


class CarriedCopies(msgspec.Struct, frozen=True):
    """The keepers of one node, and the copies that it keeps of others."""

    kept_by: tuple[KeeperSeen, ...] = ()
    keeps: tuple[KeptSeen, ...] = ()


read_copies = msgspec.json.Decoder(CarriedCopies).decode
