"""What nsq_channel says was done."""

from collections.abc import Mapping
from typing import Final

DONE: Final = {
    "create": "created",
    "delete": "deleted",
    "empty": "emptied",
    "pause": "paused",
    "unpause": "unpaused",
}
_HANDLED: Final = {"finish": "finished", "requeue": "requeued", "send": "sent", "cancel": "cancelled"}


def messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


def handled(action: str, count: int, *, dry: bool) -> str:
    return f"{messages(count)} {'would be ' if dry else ''}{_HANDLED[action]}"


def sought(sequence: int, owed: int) -> str:
    return f"{messages(owed)} owed, from sequence {sequence} on"


def sent_back(found: int, sent: int, left: Mapping[str, int], *, dry: bool) -> str:
    """*left* are those that cannot go, by why."""
    line = f"{messages(found if dry else sent)} {'would be ' if dry else ''}sent back"
    return "; ".join([line, *(f"{messages(count)} left: {why}" for why, count in left.items())])
