"""Recognises a peer whose bytes are not those of nsqd. Pure."""

from nsqclient._errors import HandshakeError, WrongPortError
from nsqclient.wire.frames import FrameError


def stranger(address: str, data: bytes, error: FrameError) -> ConnectionError:
    """The error for such a peer; it names the kind of port when the bytes tell it."""
    if data.startswith(b"HTTP/"):
        return WrongPortError(
            f"{address} answers in HTTP: this is an HTTP port, nsqd's TCP port is 4150 by default"
        )
    if data[4:].startswith(b"E_BAD_PROTOCOL"):
        return WrongPortError(
            f"{address} does not know nsqd's protocol: it seems to be the TCP port of nsqlookupd"
        )
    if data.startswith((b"\x15\x03", b"\x16\x03")):
        return WrongPortError(f"{address} answers in TLS from the first byte: it is no TCP port of nsqd")
    return HandshakeError(f"{address} does not speak the NSQ protocol: {error}")
