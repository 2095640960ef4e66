"""Ports for the servers that are started here."""

import random
import socket
from typing import Final

# Above lies the range the system takes the ports of outgoing connections from. Such a connection, of anything
# that runs beside, would keep a server from listening there, the first time or when it is started again.
LAST_PORT: Final = 32_000
# Not the usual generator: whoever seeds that begins anew, in all processes alike.
dice: Final = random.SystemRandom()


def free_port() -> int:
    """A port that nobody has right now and no outgoing connection will have."""
    while True:
        port = dice.randint(10_000, LAST_PORT)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
