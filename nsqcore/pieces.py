"""Buffers received bytes until a whole command or body has arrived. Pure."""

from typing import Final

# Chunks are joined up to this size: an object takes up to 60 bytes more than its content.
JOINED: Final = 4096


def add_piece(pieces: list[bytes], piece: bytes) -> None:
    """Append *piece* to *pieces*; many small chunks take little more memory than one large chunk."""
    if pieces and len(pieces[-1]) + len(piece) <= JOINED:
        pieces[-1] += piece
    else:
        pieces.append(piece)


def from_byte(data: bytes, start: int) -> bytes:
    """*data* from *start* on; *data* itself for 0, which a slice would copy in compiled code."""
    return data[start:] if start else data
