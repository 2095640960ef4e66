"""Free ports for the processes that a run starts."""

import random
import socket
from typing import Final

# The system takes the ports of outgoing connections from a range above this port. A connection of any other
# program there would keep a server from listening, at its first start or at a later one.
LAST_PORT: Final = 32_000
# A separate generator, because code that seeds the usual one would repeat the same ports in all processes.
dice: Final = random.SystemRandom()


def free_port() -> int:
    """Return a port that is free now and that no outgoing connection will take."""
    while True:
        port = dice.randint(10_000, LAST_PORT)
        if is_free(port):
            return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
