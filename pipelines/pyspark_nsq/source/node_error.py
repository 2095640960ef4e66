"""The error of a node that gave no usable answer."""

import json
from http import HTTPStatus
from typing import Final

TOPIC_NOT_FOUND: Final = "TOPIC_NOT_FOUND"
CHANNEL_NOT_FOUND: Final = "CHANNEL_NOT_FOUND"


class SourceNodeError(Exception):
    """One node's failure to answer one request: the request, the node, and the reason.

    ``status`` is None if the node could not be reached; otherwise it answered, but not with what was
    requested. ``code`` is then NSQ's error word from the body, such as ``TOPIC_NOT_FOUND``.
    """

    def __init__(
        self, verb: str, url: str, address: str, reason: str, *, status: int | None = None, code: str = ""
    ) -> None:
        super().__init__(verb, url, address, reason)
        self.verb = verb
        self.url = url
        self.address = address
        self.reason = reason
        self.status = status
        self.code = code

    @classmethod
    def from_status(cls, verb: str, url: str, address: str, status: int, body: bytes) -> "SourceNodeError":
        """Make the error for an answer with another status than 200."""
        text = body.decode("utf-8", "replace")
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:
            phrase = ""
        line = f"{status} {phrase}".rstrip()
        reason = f"got response {line} {json.dumps(text, ensure_ascii=False)}"
        return cls(verb, url, address, reason, status=status, code=_code_in(text))

    @property
    def unreachable(self) -> bool:
        return self.status is None

    def __str__(self) -> str:
        if self.unreachable:
            return f'{self.verb.capitalize()} "{self.url}": {self.reason}'
        return self.reason


def _code_in(text: str) -> str:
    try:
        answer = json.loads(text)
    except ValueError:
        return ""
    message = answer.get("message") if isinstance(answer, dict) else None
    return message if isinstance(message, str) else ""
