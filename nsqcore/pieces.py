"""Received bytes that are kept until all of a command or a body has arrived. Pure."""

from typing import Final

# Pieces are joined up to this size: an object takes up to 60 bytes more than its content.
JOINED: Final = 4096


def add_piece(pieces: list[bytes], piece: bytes) -> None:
    """Add *piece* behind *pieces*; many small pieces take little more memory than one large piece."""
    if pieces and len(pieces[-1]) + len(piece) <= JOINED:
        pieces[-1] += piece
    else:
        pieces.append(piece)


def from_byte(data: bytes, start: int) -> bytes:
    """*data* from *start* on; *data* itself for 0, which a slice would copy in compiled code."""
    return data[start:] if start else data
