"""The interface by which a connection reports its events."""

from typing import TYPE_CHECKING, Any

from nsqclient._errors import HandshakeError
from nsqclient._message import Message, Outcome
from nsqclient._requests import Publish
from nsqclient._retry import Retry
from nsqclient.wire.errors import ProtocolError

if TYPE_CHECKING:
    from nsqclient._connection import Connection


class Listener:
    """Receives the events of connections; called from the event loop, so it must not block."""

    retry: Retry  # of those that get messages

    def messages_received(self, connection: "Connection", messages: list[Message[Any]]) -> None:
        """All messages of one read, in order."""
        connection.abort(
            HandshakeError(f"{connection.address} sent {len(messages)} messages without a subscription")
        )

    def message_answered(self, outcome: Outcome) -> None:
        """The answer to one message is being sent."""

    def answer_refused(self, error: ProtocolError) -> None:
        """Nsqd does not take the answer to a message."""

    def handling_failed(self, message: Message[Any], error: BaseException | None) -> None:
        """The handler of this message has failed; *error* is None when it was logged already."""

    def requests_answered(self, connection: "Connection") -> None:
        """Some of the requests under way were answered."""

    def publish_refused(self, connection: "Connection", publish: Publish, error: ProtocolError) -> None:
        """Nsqd has refused this publish, and the connection will end."""

    def publishes_lost(self, connection: "Connection", publishes: list[Publish]) -> None:
        """The connection has ended before these publishes were answered."""

    def connection_lost(self, connection: "Connection", error: Exception | None) -> None:
        """The connection has ended; *error* is None when this side closed it."""
