"""One client's connection without its socket: bytes received in, replies and work for the broker out.

All commands of one read buffer are applied in one loop. Messages that they publish are staged at their
topics, and replies are collected in ``out``; the server stores the staged messages before it sends the
replies.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from nsqclient.wire.errors import (
    E_AUTH_DISABLED,
    E_AUTH_FAILED,
    E_BAD_PROTOCOL,
    E_IDENTIFY_FAILED,
    E_INVALID,
    E_UNAUTHORIZED,
    ProtocolError,
)
from nsqclient.wire.frames import FRAME_RESPONSE, encode_frame
from nsqcore.pieces import add_piece, from_byte
from nsqd.engine.broker import Broker
from nsqd.engine.credit import CLOSED_SINK, Sink
from nsqd.engine.topic import Refused, Topic
from nsqd.log.frames import LONG
from nsqd.protocol import consume as consuming
from nsqd.protocol import publish as publishing
from nsqd.protocol.auth import Authorizations, Query
from nsqd.protocol.batch import Truncated
from nsqd.protocol.connection_state import OK, ConnectionState, LongBatch
from nsqd.protocol.identify import Upgrade, negotiate, parse_identity, upgrades
from nsqd.protocol.long_body import LongBody, begun_body
from nsqd.protocol.reading import Incomplete, Suspended, read_body, text
from nsqd.protocol.states import ALLOWED

MAGIC: Final = b"  V2"
# The magic of connections between nodes: see `nsqd.replication`.
STREAM_MAGIC: Final = b"  R2"
MAX_LINE: Final = 16_384
_MAX_PUBLISH_LINES: Final = 1024
# After so many new topics of one client other clients are served: a topic with its files takes a millisecond.
MAX_NEW_TOPICS: Final = 16

# (session, parameters with the word first, data, position after the line, now) -> where the command ends
Handler: TypeAlias = Callable[["Session", list[bytes], bytes, int, int], int]


class _Drop(Exception):
    """The connection is closed without a reply."""


class _IsStream(Exception):
    """The peer is another node and not a client."""


class _Upgrading(Exception):
    """The bytes that follow were sent too early: they are lost, as in the original."""


class Session(ConnectionState):
    """Reads the bytes of one V2 connection and applies its commands."""

    __slots__ = (
        "_cut",
        "_from",
        "_have",
        "_need",
        "_new_topics",
        "_pieces",
        "_publish_lines",
        "body",
        "needs_tls",
        "started",
        "stream",
        "yielding",
    )

    def __init__(
        self, broker: Broker, sink: Sink, peer_host: str, keep_for: Callable[[int], Callable[[], bool]]
    ) -> None:
        """Takes the arguments of `ConnectionState`."""
        super().__init__(broker, sink, peer_host, keep_for)
        self.started = False
        # The bytes that followed the magic of another node, for the stream's own reader.
        self.stream: bytes | None = None
        # An incomplete command: stored in chunks, and joined once when all of it has arrived.
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = 0
        self._cut: ProtocolError | None = None
        # No command but IDENTIFY is allowed.
        self.needs_tls = broker.limits.tls_required
        # "PUB topic" and "MPUB topic" lines seen before, so that each line is parsed only once.
        self._publish_lines: dict[bytes, tuple[publishing.AfterLine, Topic]] = {}
        # How many topics this call of `receive` has made, and whether the rest waits for the next round.
        self._new_topics = 0
        self.yielding = False
        # Where the waiting command began in the bytes in which it was found.
        self._from = 0
        # The message that the server receives in its place; no command is applied until it is there.
        self.body: LongBody | None = None

    # --- what the server calls ---

    def receive(self, data: bytes, now_ns: int) -> None:
        """Apply all commands that are complete, and store the rest.

        After `MAX_NEW_TOPICS` new topics the remaining commands wait for :meth:`resume`.
        """
        self._new_topics = 0
        if self.body is not None:
            self._put_back(self.body)
        start = 0
        while not (self.closing or self.upgrading):
            if not self._have and self.query is None:
                self._apply(data, start, now_ns)
                return
            missing = self._need - self._have
            if self.is_blocked() or not LONG <= missing <= len(data) - start - LONG:
                self._add(from_byte(data, start), now_ns)
                return
            # Only the rest of the long command is joined to it; the bytes after it are not copied.
            self._add(data[start : start + missing], now_ns)
            start += missing

    def begin_body(self, data: bytes = b"") -> bool:
        """Have the server receive the rest of a long message into `body`; False if none has begun.

        *data* are the first bytes behind the last long message of the client.
        """
        pieces = [data] if data else self._pieces
        if not (data or self._have) or self.is_blocked() or self.closing:
            return False
        body = begun_body(pieces, self.broker.limits.max_msg_size, trusted=bool(data))
        if body is None or body.line not in self._publish_lines:
            return False
        self.body = body
        self._pieces = []
        self._have = 0
        return True

    def end_body(self, now_ns: int) -> None:
        """Publish the message in `body`, which has arrived."""
        body = self.body
        if body is None:
            return
        self.body = None
        self._forget_expired(now_ns)
        known = self._publish_lines.get(body.line)
        if known is None or known[1].deleted:
            # Something has changed for the line since it was read.
            self.receive(body.arrived(), now_ns)
        else:
            publishing.publish_long(self, known[1], body, now_ns)

    def _put_back(self, body: LongBody) -> None:
        """Store the received part of *body* as an incomplete command like any other."""
        self.body = None
        self._pieces = [body.arrived()]
        self._have = len(self._pieces[0])
        self._need = self._have + body.missing

    def _add(self, piece: bytes, now_ns: int) -> None:
        """Add *piece* to the stored bytes, and apply the command once it is complete."""
        add_piece(self._pieces, piece)
        self._have += len(piece)
        if self._have < self._need or self.is_blocked():
            return
        whole = b"".join(self._pieces)
        self._pieces = []
        self._have = 0
        self._cut = None
        self._apply(whole, 0, now_ns)

    def _apply(self, data: bytes, start: int, now_ns: int) -> None:
        """Apply the commands from *start* on that are complete, and store the rest."""
        self._forget_expired(now_ns)
        try:
            if not self.started:
                start = self._magic(data)
            total = len(data)
            while start < total:
                # Assigned only when the command was complete, so `start` is where an incomplete one begins.
                start = self._command(data, start, now_ns)
        except Incomplete as missing:
            self._pieces = [from_byte(data, start)]
            self._have = len(data) - start
            self._need = missing.end - start
            self._cut = missing.cut
        except Suspended as suspended:
            self._from = start if suspended.start is None else suspended.start
            rest = from_byte(data, self._from)
            self._pieces = [rest]
            self._have = len(rest)
            self._need = 0
            self._cut = None
        except ProtocolError as error:
            self.refuse(error)
        except Refused as refused:
            self.refuse(publishing.refusal(text(data[start:].split(b" ", 1)[0]), refused))
        except (_IsStream, _Upgrading):
            pass
        except _Drop:
            self.closing = True

    def _forget_expired(self, now_ns: int) -> None:
        if self.authorizations is not None and now_ns > self.authorizations.expires_ns:
            # Lines are parsed again, so that their permission is checked again.
            self._publish_lines.clear()

    def end_of_stream(self, now_ns: int) -> None:
        """The peer sends no more: a command that is cut off inside its body is answered with its error."""
        if self.body is not None:
            self._put_back(self.body)
        self.ended = True
        self._need = 0
        if self.is_blocked():
            # Commands that came before the end are applied when the answer is there.
            return
        if self._have:
            # Try again now that no reply is pending: the error then names the missing part exactly.
            self.receive(b"", now_ns)
            if self.is_blocked():
                return
        if not self.closing and self._have and self._cut is not None:
            self.refuse(self._cut)
        self.closing = True

    def authorized(self, found: Authorizations | None, now_ns: int) -> None:
        """Take the answer to `query`, None if it is invalid; then apply the commands that arrived since."""
        query, self.query = self.query, None
        if query is None or self.closing:
            return
        try:
            self._take(found, query)
        except ProtocolError as error:
            self.refuse(error)
            return
        self._go_on(now_ns)

    def resume(self, now_ns: int) -> None:
        """Publish the next slice of `batch`; behind the last one, apply the commands that waited."""
        self.yielding = False
        if self.batch is None or self._publish_slice(self.batch, now_ns):
            self._go_on(now_ns)

    def _publish_slice(self, batch: LongBatch, now_ns: int) -> bool:
        """Publish the next slice of *batch*; True when the commands behind it may be applied."""
        try:
            if not publishing.publish_slice(self, batch, now_ns):
                return False
        except Truncated as cut:
            self.end_batch()
            if self.ended:
                self.refuse(cut)
                return False
            # The messages are longer than declared: the rest may be on its way.
            self._need = cut.need - self._from
            self._cut = cut
        except ProtocolError as error:
            self.refuse(error)
            return False
        except Refused as refused:
            self.refuse(publishing.refusal("MPUB", refused))
            return False
        else:
            self.end_batch()
            rest = b"".join(self._pieces)[batch.slices.end - self._from :]
            self._pieces = [rest]
            self._have = len(rest)
        return True

    def _go_on(self, now_ns: int) -> None:
        """Apply the commands that came while nothing was applied."""
        if self._have and self._have >= self._need:
            self.receive(b"", now_ns)
        if self.ended and not self.is_blocked():
            self.end_of_stream(now_ns)

    def is_blocked(self) -> bool:
        """Whether commands wait for the answer to `query`, the end of `batch`, or the next round."""
        return self.query is not None or self.batch is not None or self.yielding

    def _take(self, found: Authorizations | None, query: Query) -> None:
        if found is None:
            raise ProtocolError(E_AUTH_FAILED, "AUTH failed")
        if query.answer:
            if not found.grants:
                raise ProtocolError(E_UNAUTHORIZED, "AUTH no authorizations found")
            self.replies.append(encode_frame(FRAME_RESPONSE, found.to_json()))
        self.authorizations = found
        self._publish_lines.clear()

    def upgrade_done(self) -> None:
        """The next upgrade is in place: its OK is the first reply that goes through it."""
        self.upgraded += self.upgrading[:1]
        self.needs_tls = self.needs_tls and Upgrade.TLS not in self.upgraded
        self.upgrading = self.upgrading[1:]
        self.replies.append(OK)

    def upgrade_failed(self, reason: str) -> None:
        """The next upgrade could not be made: the error is sent without it, and the connection closes."""
        self.upgrading = ()
        self.refuse(ProtocolError(E_IDENTIFY_FAILED, f"IDENTIFY failed {reason}"))

    @property
    def is_idle_publisher(self) -> bool:
        """Whether the client has published, consumes nothing, and waits for no answer."""
        under_way = self._have or self.body is not None or self.replies
        return bool(self.pub_counts) and self.consumer is None and not under_way

    def forget_publish_lines(self) -> None:
        """Parse the lines of the next publishes again, because something changed for them."""
        self._publish_lines.clear()

    def disconnect(self) -> None:
        """End the session: the connection is gone."""
        self.closing = True
        self.end_batch()
        self.body = None
        self._publish_lines.clear()
        self.sink = CLOSED_SINK
        if self.consumer is not None:
            self.broker.remove_consumer(self.consumer)
            self.consumer.sink = CLOSED_SINK

    def take_replies(self) -> bytes:
        """The replies of this write batch; its publishes are stored by now."""
        out = self.replies[0] if len(self.replies) == 1 else b"".join(self.replies)
        self.forget_replies()
        return out

    def forget_replies(self) -> None:
        """The replies are sent, or another object sends them."""
        self.replies = []
        self.staged = []
        self.marked = None

    def not_stored(self, topic: Topic, reason: str) -> None:
        """The publishes of this batch to *topic* could not be stored: reply that instead of OK, and close."""
        for mark in self.staged:
            if mark.topic is topic:
                del self.replies[mark.reply :]
                self.refuse(ProtocolError(f"E_{mark.command}_FAILED", f"{mark.command} failed {reason}"))
                return

    # --- the loop ---

    def _magic(self, data: bytes) -> int:
        if len(data) < len(MAGIC):
            raise Incomplete(len(MAGIC), None)
        if data.startswith(STREAM_MAGIC):
            self.stream = data[len(STREAM_MAGIC) :]
            raise _IsStream
        if not data.startswith(MAGIC):
            raise ProtocolError(E_BAD_PROTOCOL)
        self.started = True
        return len(MAGIC)

    def _command(self, data: bytes, start: int, now_ns: int) -> int:
        """Apply the command at *start*; returns where the next one begins."""
        if data.startswith(b"FIN ", start) and self.consumer is not None:
            end = consuming.fins(self, data, start, now_ns)
            if end:
                return end
        newline = data.find(b"\n", start, start + MAX_LINE)
        if newline < 0:
            if len(data) - start >= MAX_LINE:
                raise _Drop
            raise Incomplete(len(data) + 1, None)
        line = data[start:newline]
        known = self._publish_lines.get(line)
        if known is not None:
            publish, topic = known
            if not topic.deleted:
                return publish(self, topic, data, newline + 1, now_ns)
        params = line.removesuffix(b"\r").split(b" ")
        word = params[0]
        if self.needs_tls and word != b"IDENTIFY":
            raise ProtocolError(E_INVALID, f"cannot {text(word)} in current state (TLS required)")
        handler = COMMANDS.get(word)
        if handler is None:
            raise ProtocolError(E_INVALID, f"invalid command {text(word)}")
        allowed = ALLOWED.get(word)
        if allowed is not None and self.state not in allowed:
            raise ProtocolError(E_INVALID, f"cannot {text(word)} in current state")
        topics = len(self.broker.topics)
        end = handler(self, params, data, newline + 1, now_ns)
        after_line = publishing.AFTER_LINE.get(word)
        if after_line is not None and self.marked is not None:
            if len(self._publish_lines) >= _MAX_PUBLISH_LINES:
                self._publish_lines.clear()
            self._publish_lines[line] = after_line, self.marked
        if len(self.broker.topics) > topics:
            self._new_topics += 1
            if self._new_topics >= MAX_NEW_TOPICS and end < len(data):
                self.yielding = True
                raise Suspended(end)
        return end


def _identify(session: Session, _params: list[bytes], data: bytes, pos: int, _now_ns: int) -> int:
    body, end = read_body("IDENTIFY", data, pos, session.broker.limits.max_body_size)
    identity = parse_identity(body)
    settings, negotiated = negotiate(identity, session.broker.limits, session.upgraded)
    session.identity = identity
    session.settings = settings
    if not identity.feature_negotiation:
        session.replies.append(OK)
        return end
    session.replies.append(encode_frame(FRAME_RESPONSE, negotiated.to_json()))
    session.upgrading = upgrades(negotiated)
    if session.upgrading:
        raise _Upgrading
    return end


def _auth(session: Session, params: list[bytes], data: bytes, pos: int, _now_ns: int) -> int:
    if len(params) != 1:
        raise ProtocolError(E_INVALID, "AUTH invalid number of parameters")
    secret, end = read_body("AUTH", data, pos, session.broker.limits.max_body_size)
    if session.authorizations is not None:
        raise ProtocolError(E_INVALID, "AUTH already set")
    if not session.broker.limits.auth_required:
        raise ProtocolError(E_AUTH_DISABLED, "AUTH disabled")
    session.start_auth(secret)
    raise Suspended(end)


def _nop(_session: Session, _params: list[bytes], _data: bytes, pos: int, _now_ns: int) -> int:
    return pos


COMMANDS: Final[dict[bytes, Handler]] = {
    b"IDENTIFY": _identify,
    b"AUTH": _auth,
    b"NOP": _nop,
    b"PUB": publishing.pub,
    b"MPUB": publishing.mpub,
    b"DPUB": publishing.dpub,
    b"PUB_EXT": publishing.pub_ext,
    b"MPUB_EXT": publishing.mpub_ext,
    b"SUB": consuming.sub,
    b"RDY": consuming.rdy,
    b"FIN": consuming.fin,
    b"REQ": consuming.req,
    b"TOUCH": consuming.touch,
    b"CLS": consuming.cls,
}
