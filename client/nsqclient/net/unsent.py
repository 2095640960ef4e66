"""How much of what was written has not reached the other machine."""

import asyncio
import struct
import sys

if sys.platform != "win32":
    import fcntl
    import termios


def unsent_bytes(transport: asyncio.Transport) -> int:
    """The number of bytes that the transport and the kernel hold.

    The kernel takes megabytes at once and then nothing for a while, so on a slow line the transport alone
    would seem to stall. Where the kernel does not tell, it is only what the transport holds.
    """
    return transport.get_write_buffer_size() + _in_kernel(transport)


def _in_kernel(transport: asyncio.Transport) -> int:
    connection = transport.get_extra_info("socket")
    if sys.platform == "win32" or connection is None:
        return 0
    try:
        answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    except OSError:  # it is closed, or this system does not know the request
        return 0
    return int(struct.unpack("i", answer)[0])
