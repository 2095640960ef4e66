"""A connection as its commands see it: the state, the replies, and the requests to the server."""

from collections.abc import Callable
from typing import Final, NamedTuple

from nsqclient.wire import frames
from nsqclient.wire.errors import E_AUTH_FIRST, E_UNAUTHORIZED, ProtocolError
from nsqclient.wire.frames import FRAME_ERROR, encode_frame
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Consumer
from nsqd.engine.credit import Sink
from nsqd.engine.topic import Topic
from nsqd.protocol.auth import Authorizations, Query
from nsqd.protocol.batch import Slices
from nsqd.protocol.identify import Identity, Upgrade, default_settings
from nsqd.protocol.quote import quote
from nsqd.protocol.reading import Suspended
from nsqd.protocol.states import State

# The frames a server sends that are not messages.
OK: Final = frames.encode_frame(frames.FRAME_RESPONSE, frames.OK)
HEARTBEAT: Final = frames.encode_frame(frames.FRAME_RESPONSE, frames.HEARTBEAT)
CLOSE_WAIT: Final = frames.encode_frame(frames.FRAME_RESPONSE, frames.CLOSE_WAIT)


class StagedPublish(NamedTuple):
    """Where the replies to this turn's publishes to a topic begin, in case the messages cannot be stored."""

    topic: Topic
    reply: int
    command: str


class LongBatch(NamedTuple):
    """An MPUB that is published in slices, the next one when the server has time for it."""

    topic: Topic
    slices: Slices


class ConnectionState:
    """The state of one V2 connection; `Session` reads its bytes and applies the commands."""

    __slots__ = (
        "authorizations",
        "batch",
        "broker",
        "closing",
        "consumer",
        "ended",
        "errors",
        "identity",
        "keep_for",
        "marked",
        "pub_counts",
        "query",
        "replies",
        "secret",
        "settings",
        "sink",
        "staged",
        "state",
        "upgraded",
        "upgrading",
    )

    def __init__(
        self, broker: Broker, sink: Sink, peer_host: str, keep_for: Callable[[int], Callable[[], bool]]
    ) -> None:
        """*keep_for* makes the draw for a sample rate in percent."""
        self.broker = broker
        self.identity = Identity(client_id=peer_host, hostname=peer_host)
        self.settings = default_settings(broker.limits)
        self.state = State.INIT
        self.consumer: Consumer | None = None
        # Replies of this turn, in order.
        self.replies: list[bytes] = []
        # The connection is to be closed once `out` is sent.
        self.closing = False
        # The peer sends no more.
        self.ended = False
        # Errors of this turn, for the log.
        self.errors: list[ProtocolError] = []
        self.staged: list[StagedPublish] = []
        # The topic of the last mark.
        self.marked: Topic | None = None
        self.pub_counts: dict[str, int] = {}
        self.sink = sink
        self.keep_for = keep_for
        # Upgrades that IDENTIFY granted and that are still to be put around the connection, in order; until
        # that is done no command is applied. Then those that are in place, in the order in which they came.
        self.upgrading: tuple[Upgrade, ...] = ()
        self.upgraded: tuple[Upgrade, ...] = ()
        # The question for the auth server. Until `authorized` is called no command is applied.
        self.query: Query | None = None
        self.authorizations: Authorizations | None = None
        self.secret = b""
        # An MPUB of very many messages. Until `resume` has published the last of them no command is applied.
        self.batch: LongBatch | None = None

    def permit(self, word: str, permission: str, topic_name: str, channel_name: str, now_ns: int) -> None:
        """Check that the client may do that. Raises ProtocolError, or Suspended to ask the auth server."""
        if not self.broker.limits.auth_required:
            return
        if self.authorizations is None:
            raise ProtocolError(E_AUTH_FIRST, f"AUTH required before {word}")
        if now_ns > self.authorizations.expires_ns:
            self.query = Query(self.secret, answer=False)
            raise Suspended(None)
        if not self.authorizations.allows(permission, topic_name, channel_name):
            names = f"{quote(topic_name.encode())} {quote(channel_name.encode())}"
            raise ProtocolError(E_UNAUTHORIZED, f"AUTH failed for {word} on {names}")

    def start_auth(self, secret: bytes) -> None:
        """Pass the query of an AUTH command to the auth server."""
        self.secret = secret
        self.query = Query(secret, answer=True)

    def start_batch(self, batch: LongBatch) -> None:
        """Have the batch published in slices; a drain waits for its end."""
        self.batch = batch
        self.broker.under_way += 1

    def end_batch(self) -> None:
        """End the long batch, if there is one."""
        if self.batch is not None:
            self.batch = None
            self.broker.under_way -= 1

    def refuse(self, error: ProtocolError) -> None:
        self.replies.append(encode_frame(FRAME_ERROR, error.payload()))
        self.errors.append(error)
        if error.fatal:
            self.closing = True
            self.end_batch()
