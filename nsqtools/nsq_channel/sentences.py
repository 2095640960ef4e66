"""The sentences with which nsq_channel reports results."""

from collections.abc import Mapping
from typing import Any, Final

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


def seek_sentence(sequence: int, pending: int) -> str:
    return f"{messages(pending)} pending, from sequence {sequence} on"


def sent_back(found: int, sent: int, left: Mapping[str, int], *, dry: bool) -> str:
    """*left* has the number of messages that cannot be sent, by reason."""
    line = f"{messages(found if dry else sent)} {'would be ' if dry else ''}sent back"
    return "; ".join([line, *(f"{messages(count)} left: {why}" for why, count in left.items())])


def policy_sentence(policy: str | None, definition: Mapping[str, Any], digest: str) -> str:
    """*digest* is the digest of all policies of the nsqd."""
    said = ", ".join(f"{name}={value}" for name, value in sorted(definition.items()))
    found = f"policy {policy}: {said}" if policy else "no policy is in force"
    return f"{found}; digest of all {digest[:12]}"


def policies_differ(addresses: Mapping[str, str]) -> str:
    """The nsqd do not have the same policies; *addresses* has the digest of each."""
    by_digest: dict[str, list[str]] = {}
    for address, digest in addresses.items():
        by_digest.setdefault(digest, []).append(address)
    groups = "; ".join(
        f"{', '.join(sorted(group))} have {digest[:12]}" for digest, group in sorted(by_digest.items())
    )
    return f"the nsqd do not have the same policies: {groups}"
