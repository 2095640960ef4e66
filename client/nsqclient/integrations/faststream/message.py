"""An NSQ message as FastStream sees it, and the headers that hold its attributes where nsqd supports them."""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any, Final, TypeAlias, cast

from faststream import Context
from faststream.message import StreamMessage, decode_message

from nsqclient._message import Message

# Names of the headers that hold attributes of FastStream's messages.
CONTENT_TYPE: Final = "content-type"
CORRELATION_ID: Final = "correlation_id"
REPLY_TO: Final = "reply_to"
_ATTRIBUTES: Final = frozenset((CONTENT_TYPE, CORRELATION_ID, REPLY_TO))


class NsqStreamMessage(StreamMessage[Message[bytes]]):
    """The message itself, for a handler that asks for it; ``raw_message`` is the client's."""

    async def ack(self) -> None:
        """Finish it."""
        if self._is_open:
            self.raw_message.finish()
        await super().ack()

    async def nack(self, delay: float | timedelta | None = None) -> None:
        """Have it delivered again after *delay* seconds.

        Without *delay* its subscriber's ``retry`` says when, and the last time it goes to the dead letters.
        """
        if self._is_open:
            if delay is None:
                # FastStream logs why.
                self.raw_message._source.handling_failed(cast("Message[object]", self.raw_message), None)
            else:
                self.raw_message.requeue(delay)
        await super().nack()

    async def reject(self) -> None:
        """Finish it, because NSQ has no command to reject a message."""
        if self._is_open:
            self.raw_message.finish()
        await super().reject()

    @property
    def _is_open(self) -> bool:
        """Whether it has no answer, nor waits for one because it is on its way to the dead letters."""
        return self.committed is None and not self.raw_message.answered


def headers_of(
    headers: Mapping[str, Any], *, content_type: str | None, correlation_id: str | None, reply_to: str
) -> dict[str, str]:
    """All headers to publish with a body."""
    attributes = {CONTENT_TYPE: content_type, CORRELATION_ID: correlation_id, REPLY_TO: reply_to}
    return {
        **{name: str(value) for name, value in headers.items()},
        **{name: value for name, value in attributes.items() if value},
    }


async def parse_message(message: Message[bytes]) -> NsqStreamMessage:
    headers = message.headers
    return NsqStreamMessage(
        raw_message=message,
        body=message.body,
        headers={name: value for name, value in headers.items() if name not in _ATTRIBUTES},
        content_type=headers.get(CONTENT_TYPE),
        correlation_id=headers.get(CORRELATION_ID),
        reply_to=headers.get(REPLY_TO, ""),
        message_id=message.id.decode(errors="replace"),
    )


async def decode_body(message: StreamMessage[Any]) -> Any:
    """Decode a body by its content type; without headers it has none and is read as JSON, text, or bytes."""
    if message.raw_message.headers:
        return decode_message(message)
    body: bytes = message.body
    with suppress(ValueError, RecursionError):
        return json.loads(body)
    with suppress(UnicodeDecodeError):
        return body.decode()
    return body


NsqMessage: TypeAlias = Annotated[NsqStreamMessage, Context("message")]
