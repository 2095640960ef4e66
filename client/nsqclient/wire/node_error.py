"""The error of a node that gave no usable answer, which can be collected, shown and counted."""

import json
from http import HTTPStatus
from typing import Final

TOPIC_NOT_FOUND: Final = "TOPIC_NOT_FOUND"
CHANNEL_NOT_FOUND: Final = "CHANNEL_NOT_FOUND"
# The node was decommissioned: another one owns its messages now.
DECOMMISSIONED: Final = "DECOMMISSIONED"
# The maximum length of a node's text that is shown, in characters: any program may answer at its address.
_MAX_TEXT: Final = 1000


class NodeError(Exception):
    """One node's failure to answer one request: the request, the node, and what went wrong.

    ``status`` is None when the node could not be reached. Otherwise the node gave an unexpected answer;
    ``code`` is then NSQ's error word from the body, such as ``TOPIC_NOT_FOUND``. ``sent`` tells whether a
    request without an answer had gone out.
    """

    def __init__(
        self,
        verb: str,
        url: str,
        address: str,
        reason: str,
        *,
        status: int | None = None,
        code: str = "",
        sent: bool = False,
    ) -> None:
        super().__init__(verb, url, address, reason)
        self.verb = verb
        self.url = url
        self.address = address
        self.reason = reason
        self.status = status
        self.code = code
        self.sent = sent

    @classmethod
    def from_status(cls, verb: str, url: str, address: str, status: int, body: bytes) -> "NodeError":
        """Make the error for an answer whose status is not success."""
        text = body.decode("utf-8", "replace")
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:
            phrase = ""
        line = f"{status} {phrase}".rstrip()
        reason = f"got response {line} {json.dumps(text[:_MAX_TEXT], ensure_ascii=False)}"
        return cls(verb, url, address, reason, status=status, code=_code_in(text))

    @property
    def unreachable(self) -> bool:
        return self.status is None

    @property
    def may_happen(self) -> bool:
        """Whether the outcome of a change is unknown: the node got the request and may still execute it."""
        return self.unreachable and self.sent and self.verb != "GET"

    def __str__(self) -> str:
        if self.status == HTTPStatus.OK:
            # The reason of an unusable answer names the address.
            return self.reason
        unknown = "; the outcome is unknown, it may still happen" if self.may_happen else ""
        return f'{self.verb.capitalize()} "{self.url}": {self.reason}{unknown}'

    def __repr__(self) -> str:
        return f"NodeError({self.verb} {self.url}: {self.reason})"


def _code_in(text: str) -> str:
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    if isinstance(answer, dict) and isinstance(answer.get("message"), str):
        return str(answer["message"])[:_MAX_TEXT]
    return ""
