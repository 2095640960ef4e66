"""When what has failed is tried again, and whether that is logged."""

from collections.abc import Callable, Hashable
from typing import Final

from nsqd.server.clock import now_ns

# How long after a failure the same is tried again.
_AGAIN_NS: Final = 1_000_000_000


class Troubles:
    """What could not be written: it is tried again after a pause, and a reason is logged when it is new."""

    def __init__(self, clock: Callable[[], int] = now_ns) -> None:
        self._clock = clock
        # The reasons, and when the next try is.
        self._known: dict[Hashable, tuple[str, int]] = {}

    def may_try(self, what: Hashable) -> bool:
        trouble = self._known.get(what)
        return trouble is None or self._clock() >= trouble[1]

    def failed(self, what: Hashable, error: OSError) -> bool:
        """Note that it has failed; returns whether the reason is new."""
        reason = str(error)
        before = self._known.get(what)
        self._known[what] = reason, self._clock() + _AGAIN_NS
        return before is None or before[0] != reason

    def worked(self, what: Hashable) -> None:
        self._known.pop(what, None)
