"""What is written down of the errors of clients."""

from collections.abc import Iterator, Sequence
from typing import Final

# Of one turn: a client that sends nothing else would keep us busy with writing them down.
MOST: Final = 10


def written(errors: Sequence[Exception]) -> Iterator[str]:
    """A sentence for each of the errors of one turn, or for the first of very many."""
    for error in errors[:MOST]:
        yield str(error).encode("utf-8", "backslashreplace").decode()
    if len(errors) > MOST:
        yield f"and {len(errors) - MOST} more"
