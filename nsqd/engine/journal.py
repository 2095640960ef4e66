"""Changes of pending messages since the last checkpoint, other than finishing.

It has due times and numbers of deliveries: facts in the order in which they became true. Of two facts on one
message the later counts. None is taken back: a fact on a finished message means nothing.
"""

from array import array
from typing import Final

# A fact in an array: the due time or the number of attempts, start, end.
WIDTH: Final = 3


class Journal:
    """See the module."""

    __slots__ = ("dues", "tries")

    def __init__(self) -> None:
        # Times are those of the engine's clock.
        self.dues = array("Q")
        self.tries = array("Q")

    @property
    def size(self) -> int:
        """Its bytes, here and in a checkpoint."""
        return self.dues.itemsize * (len(self.dues) + len(self.tries))

    def defer(self, start: int, end: int, due_ns: int) -> None:
        """Messages ``start <= seq < end`` are due at that time."""
        due_ns = max(0, due_ns)
        dues = self.dues
        if dues and dues[-1] == start and dues[-WIDTH] == due_ns:
            dues[-1] = end
        else:
            dues.extend((due_ns, start, end))

    def tried(self, start: int, end: int, count: int) -> None:
        """Messages ``start <= seq < end`` were delivered *count* times."""
        tries = self.tries
        if tries and tries[-1] == start and tries[-WIDTH] == count:
            tries[-1] = end
        else:
            tries.extend((count, start, end))

    def take(self) -> "Journal":
        """All facts since the last call."""
        taken = Journal()
        taken.dues, self.dues = self.dues, taken.dues
        taken.tries, self.tries = self.tries, taken.tries
        return taken
