"""Run a command in its own network, where the kernel allows it.

The suites of public clients use NSQ's default ports. In a network namespace these are always free, so a
cluster that runs on this machine is neither disturbed nor mistaken for the one under test.
Usage: ``python own_network.py COMMAND ARGUMENT...``
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Final

CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000
SIOCSIFFLAGS: Final = 0x8914
IFF_UP: Final = 1


def leave_the_common_network() -> bool:
    """Enter a new network namespace with only a loopback device; return whether that was possible."""
    unshare = ctypes.CDLL(None).unshare
    uid, gid = os.getuid(), os.getgid()
    if unshare(CLONE_NEWNET) != 0:
        # Without root, a new user namespace gives the right to make a network.
        if unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            return False
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    return True


if __name__ == "__main__":
    if not leave_the_common_network():
        sys.stderr.write("own_network: not possible here; the default ports of NSQ must be free\n")
    os.execvp(sys.argv[1], sys.argv[1:])
