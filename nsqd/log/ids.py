"""Message ids: a node id and a topic's sequence number as 16 hexadecimal characters.

The upper 10 bits are the node id, the lower 54 the sequence number. `sequences` says where a topic's numbers
begin: never below the microseconds since 1970 (54 bits of them last for 570 years).
"""

from typing import Final

SEQUENCE_BITS: Final = 54
SEQUENCE_MASK: Final = (1 << SEQUENCE_BITS) - 1
MAX_NODE_ID: Final = 1023

ID_LENGTH: Final = 16

# An id is 12 digits that change every 65,536 messages and 4 that change with each; both are looked up,
# because formatting a number for every message was the largest cost of publishing.
SUFFIX_MASK: Final = 0xFFFF
_PAIRS: Final = [b"%02x" % n for n in range(256)]
SUFFIXES: Final[list[bytes]] = [high + low for high in _PAIRS for low in _PAIRS]
# The same by digit: all first digits, all second digits, and so on.
_ALL_SUFFIXES: Final = b"".join(SUFFIXES)
SUFFIX_COLUMNS: Final = [_ALL_SUFFIXES[digit::4] for digit in range(4)]

_HEX_DIGITS: Final = frozenset(b"0123456789abcdef")


def first_sequence(now_ns: int) -> int:
    """The sequence that the clock gives: no topic begins below it."""
    return now_ns // 1000 & SEQUENCE_MASK


class MessageIds:
    """Turns sequence numbers of this node into message ids and back."""

    __slots__ = ("_base", "_former", "_prefix", "_prefix_of", "node_id")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self._base = node_id << SEQUENCE_BITS
        # The node ids under which this node wrote messages that are on its disk.
        self._former: set[int] = set()
        self._prefix_of = -1
        self._prefix = b""

    def recognise(self, node_id: int) -> None:
        """Accept ids with this node id, which this node had at an earlier start."""
        self._former.add(node_id)

    def encode(self, seq: int) -> bytes:
        return b"%016x" % (self._base | seq)

    def prefix(self, seq: int) -> bytes:
        """The first 12 characters of the id of *seq*."""
        high = seq >> 16
        if high != self._prefix_of:
            self._prefix_of = high
            self._prefix = b"%012x" % ((self._base | seq) >> 16)
        return self._prefix

    def decode(self, message_id: bytes) -> int:
        """The sequence number of an id; -1 when no message of this node can have it."""
        if len(message_id) != ID_LENGTH or not _HEX_DIGITS.issuperset(message_id):
            return -1
        return self.decode_hex(message_id)

    def current(self, message_id: bytes) -> int:
        """Like :meth:`decode`, but also -1 for an id that this node gave under a former node id."""
        seq = self.decode(message_id)
        return seq if seq >= 0 and self.encode(seq) == message_id else -1

    def decode_hex(self, message_id: bytes) -> int:
        """Like :meth:`decode`, for 16 bytes already known to be lower-case hexadecimal digits."""
        number = int(message_id, 16)
        seq = number ^ self._base
        if seq <= SEQUENCE_MASK:
            return seq
        return number & SEQUENCE_MASK if number >> SEQUENCE_BITS in self._former else -1
