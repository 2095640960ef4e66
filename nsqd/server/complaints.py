"""Which errors of clients are logged."""

from collections.abc import Iterator, Sequence
from typing import Final

# Errors that are logged in one turn: a client that only sends errors would keep nsqd busy with logging.
MOST: Final = 10


def written(errors: Sequence[Exception]) -> Iterator[str]:
    """Yield a sentence for each error of one turn: for the first `MOST`, and then how many more there are."""
    for error in errors[:MOST]:
        yield str(error).encode("utf-8", "backslashreplace").decode()
    if len(errors) > MOST:
        yield f"and {len(errors) - MOST} more"
