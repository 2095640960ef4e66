"""A message in the hands of a handler, with the ways to answer it."""

from nsqcore.client.connection import Connection
from nsqcore.wire import commands
from nsqcore.wire.message import Message


class Delivery:
    """One message on one connection; it can be answered once, by the handler or by the consumer after it."""

    __slots__ = ("_connection", "_message", "answered", "backoff", "received_at")

    def __init__(self, message: Message, connection: Connection, received_at: float) -> None:
        self._message = message
        self._connection = connection
        self.received_at = received_at  # event loop time
        self.answered = False
        self.backoff = False  # the answer asks the consumer to slow down

    def __repr__(self) -> str:
        return f"<Delivery {self.id.decode(errors='replace')} attempt {self.attempts} from {self.nsqd}>"

    @property
    def id(self) -> bytes:
        return self._message.id

    @property
    def body(self) -> bytes:
        return self._message.body

    @property
    def attempts(self) -> int:
        return self._message.attempts

    @property
    def timestamp_ns(self) -> int:
        return self._message.timestamp_ns

    @property
    def nsqd(self) -> str:
        """The address of the nsqd it came from."""
        return self._connection.address

    @property
    def is_lost(self) -> bool:
        """Whether no answer can reach nsqd any more; it delivers the message again."""
        return self._connection.is_closed

    def finish(self) -> None:
        """Done; nsqd forgets it."""
        self._answer(commands.fin(self.id))

    def requeue(self, delay: float = 0, *, backoff: bool = False) -> None:
        """Not done; it is delivered again after *delay* seconds, and with backoff the consumer slows down."""
        self.backoff = backoff
        self._answer(commands.req(self.id, round(delay * 1000)))

    def touch(self) -> None:
        """Still working; the message time-out starts anew."""
        if not self.answered:
            self._connection.send(commands.touch(self.id))

    def _answer(self, command: bytes) -> None:
        if self.answered:
            raise RuntimeError(f"{self!r} was answered before")
        self.answered = True
        self._connection.send(command)
        self._connection.message_answered()
