"""How much somebody owes, held against what a policy allows."""

from nsqd.engine.owed import Owed
from nsqd.engine.settings import Settings
from nsqd.log.tail import Log


def excess(owed: Owed, settings: Settings, log: Log, count: int = 0, size: int = 0) -> int:
    """How many messages are owed too many; *count* more of *size* bytes are about to come."""
    beyond = owed.count() + count - settings.max_depth if settings.max_depth else 0
    if settings.max_bytes:
        bytes_beyond = owed.weight.of(owed, log) + size - settings.max_bytes
        if bytes_beyond > 0:
            beyond = max(beyond, -(-bytes_beyond // owed.weight.mean))
    return max(0, beyond)
