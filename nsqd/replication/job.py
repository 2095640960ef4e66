"""Work of replication for threads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from nsqd.log.disk import Disk


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Work on files: *run* in any thread, which may raise; then *ended* in the thread of the loop.

    *ended* is called with the error, if there was one, and the time in nanoseconds.
    """

    run: Callable[[Disk], None]
    ended: Callable[[Exception | None, int], None]
    # The log to which the rules are applied then; empty for none.
    origin: bytes = b""


# Runs a job soon, given its function and the callback for its end.
StartJob: TypeAlias = Callable[[Callable[[Disk], None], Callable[[Exception | None, int], None]], None]
