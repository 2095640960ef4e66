"""The compressed streams of a V2 connection, without its socket: bytes in, bytes out.

Compressed bytes are flushed, so that the peer can read all of them immediately. Received bytes are
decompressed in chunks of bounded size, one at a time, because a few bytes may decompress to very many.
"""

import zlib
from typing import Final, Protocol

# The size in bytes of the largest chunk that read() returns: snappy's limit for one chunk.
MAX_CHUNK: Final = 65_536


class CorruptStream(Exception):
    """The peer's bytes are not in the negotiated format, or its stream has ended; the text says which."""


class Codec(Protocol):
    """Both directions of one compressed connection."""

    def compress(self, data: bytes) -> bytes: ...

    def feed(self, data: bytes) -> None:
        """Take received bytes, to be read with :meth:`read`."""

    def read(self) -> bytes:
        """The next decompressed chunk; empty when more has to be fed first. Raises CorruptStream."""


class Deflate:
    """Raw deflate, one endless stream each way, every write ended by an empty block."""

    def __init__(self, level: int) -> None:
        self._compressor = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._decompressor = zlib.decompressobj(-zlib.MAX_WBITS)
        self._fed: list[bytes] = []

    def compress(self, data: bytes) -> bytes:
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def feed(self, data: bytes) -> None:
        self._fed.append(data)

    def read(self) -> bytes:
        packed = self._decompressor.unconsumed_tail
        if self._fed:
            packed += b"".join(self._fed)
            self._fed.clear()
        # Called even without new bytes: the last call may have left some of its output inside.
        try:
            piece = self._decompressor.decompress(packed, MAX_CHUNK)
        except zlib.error as error:
            raise CorruptStream(f"deflate: {error}") from error
        if not piece and self._decompressor.eof:
            raise CorruptStream("deflate: end of stream")
        return piece


SNAPPY_STREAM_HEADER: Final = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED: Final = 0x00
_UNCOMPRESSED: Final = 0x01
_SKIPPABLE: Final = 0x80
_STREAM: Final = 0xFF
_HEADER_SIZE: Final = 4
# A checksum, and 64 KiB with the most that compressing can add according to the format.
_MAX_CHUNK: Final = 4 + 32 + MAX_CHUNK + MAX_CHUNK // 6


class Snappy:
    """The framing format of snappy: chunks of at most 64 KiB, each with its checksum."""

    def __init__(self) -> None:
        import cramjam  # an extra: most connections are not compressed

        self._cramjam = cramjam
        self._compressor = cramjam.snappy.Compressor()
        self._received = bytearray()
        self._to_skip = 0
        self._started = False

    def compress(self, data: bytes) -> bytes:
        self._compressor.compress(data)
        return bytes(self._compressor.flush())

    def feed(self, data: bytes) -> None:
        if self._to_skip:
            skipped = min(self._to_skip, len(data))
            self._to_skip -= skipped
            data = data[skipped:]
        self._received += data

    def read(self) -> bytes:
        received = self._received
        while len(received) >= _HEADER_SIZE:
            kind = received[0]
            end = _HEADER_SIZE + int.from_bytes(received[1:_HEADER_SIZE], "little")
            if kind in {_COMPRESSED, _UNCOMPRESSED} and self._started:
                if end > _HEADER_SIZE + _MAX_CHUNK:
                    raise CorruptStream("snappy: chunk too long")
                if end > len(received):
                    break
                with memoryview(received) as view:
                    stream = b"".join((SNAPPY_STREAM_HEADER, view[:end]))
                del received[:end]
                piece = self._decompress(stream)
                if piece:
                    return piece
            elif kind == _STREAM:
                if end != len(SNAPPY_STREAM_HEADER):
                    raise CorruptStream("snappy: bad stream header")
                if end > len(received):
                    break
                if received[:end] != SNAPPY_STREAM_HEADER:
                    raise CorruptStream("snappy: bad stream header")
                del received[:end]
                self._started = True
            elif kind >= _SKIPPABLE and self._started:
                # Padding may be announced with up to 16 MiB: it is dropped as it arrives.
                self._to_skip = max(0, end - len(received))
                del received[:end]
            else:
                raise CorruptStream("snappy: unknown chunk" if self._started else "snappy: no stream header")
        return b""

    def _decompress(self, stream: bytes) -> bytes:
        # A header and one chunk are a whole stream, so the library checks its size and checksum.
        try:
            return bytes(self._cramjam.snappy.decompress(stream))
        except self._cramjam.DecompressionError as error:
            raise CorruptStream(str(error)) from error
