"""The states of a connection, and which commands are legal in which."""

from enum import IntEnum
from typing import Final


class State(IntEnum):
    """The numbers clients see in /stats."""

    INIT = 0
    SUBSCRIBED = 3
    CLOSING = 4


_INIT: Final = frozenset((State.INIT,))
_ANSWERING: Final = frozenset((State.SUBSCRIBED, State.CLOSING))

# Commands that are not named here are legal in all states.
ALLOWED: Final[dict[bytes, frozenset[State]]] = {
    b"IDENTIFY": _INIT,
    b"AUTH": _INIT,
    b"SUB": _INIT,
    b"RDY": _ANSWERING,
    b"FIN": _ANSWERING,
    b"REQ": _ANSWERING,
    b"TOUCH": _ANSWERING,
    b"CLS": frozenset((State.SUBSCRIBED,)),
}
