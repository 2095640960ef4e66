"""A message as consumers get it: ``int64 timestamp | uint16 attempts | 16 bytes id | body``."""

from dataclasses import dataclass
from struct import Struct
from typing import Final, Self

MESSAGE_ID_BYTES: Final = 16

MESSAGE_HEADER: Final = Struct(">qH16s")

# A message frame without its body: size and type of the frame, then the message's own header.
FRAME_OVERHEAD: Final = 4 + 4 + MESSAGE_HEADER.size


@dataclass(slots=True)
class MessageRecord:
    """One delivery: publish time in nanoseconds, number of deliveries, id, body."""

    timestamp_ns: int
    attempts: int
    id: bytes
    body: bytes

    def encode(self) -> bytes:
        """The data of the message frame."""
        return MESSAGE_HEADER.pack(self.timestamp_ns, self.attempts, self.id) + self.body

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the data of a message frame; ValueError when it is too short to be one."""
        if len(data) < MESSAGE_HEADER.size:
            raise ValueError(
                f"message of {len(data)} bytes is shorter than its header of {MESSAGE_HEADER.size}"
            )
        timestamp_ns, attempts, message_id = MESSAGE_HEADER.unpack_from(data)
        return cls(timestamp_ns, attempts, message_id, data[MESSAGE_HEADER.size :])
