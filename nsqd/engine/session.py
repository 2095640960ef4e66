"""One client's connection without its socket: bytes received in, replies and work for the broker out.

All commands of one read buffer are applied in one loop. What they publish is staged at their topics, their
replies are collected in ``out``; the server stores the staged messages before it sends the replies.
"""

import re
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from nsqcore.wire import errors as codes
from nsqcore.wire.errors import ProtocolError
from nsqcore.wire.identify import Identity, parse_identity
from nsqcore.wire.names import is_valid_name_bytes
from nsqcore.wire.quote import quote
from nsqd.engine.broker import Broker
from nsqd.engine.channel import TooManyConsumers
from nsqd.engine.consumer import Consumer, Sink
from nsqd.engine.ids import ID_LENGTH, SUFFIX_MASK, SUFFIXES
from nsqd.engine.inflight import NotInFlight
from nsqd.engine.mpub import Truncated, check_sizes, publish_messages
from nsqd.engine.negotiation import default_settings, negotiate
from nsqd.engine.topic import Topic

MAGIC: Final = b"  V2"
MAX_LINE: Final = 16_384

FRAME_RESPONSE: Final = 0
FRAME_ERROR: Final = 1
_FRAME: Final = struct.Struct(">II")
_INT32: Final = struct.Struct(">i")

_FIN_LENGTH: Final = 4 + ID_LENGTH + 1
_FINS: Final = re.compile(rb"(?:FIN [0-9a-f]{16}\n)+")
_MAX_PUBLISH_LINES: Final = 1024
_NS_PER_MS: Final = 1_000_000
# An MPUB that is not whole is looked into when so little of it is there: a peer may declare a longer body
# than it sends, and wait for the answer. Beyond, looking would cost more than such peers are worth.
_LOOK_AHEAD: Final = 16_384
_MPUB_CUT: Final = "MPUB failed to read message body"
_UINT64: Final = (1 << 64) - 1
_DIGITS: Final = 1000
_INT64_MAX: Final = (1 << 63) - 1


class State(IntEnum):
    """The numbers clients see in /stats."""

    INIT = 0
    SUBSCRIBED = 3
    CLOSING = 4


_ANSWERING: Final = frozenset((State.SUBSCRIBED, State.CLOSING))

# Which commands are legal in which state; those not named are legal in all.
ALLOWED: Final[dict[bytes, frozenset[State]]] = {
    b"IDENTIFY": frozenset((State.INIT,)),
    b"AUTH": frozenset((State.INIT,)),
    b"SUB": frozenset((State.INIT,)),
    b"RDY": _ANSWERING,
    b"FIN": _ANSWERING,
    b"REQ": _ANSWERING,
    b"TOUCH": _ANSWERING,
    b"CLS": frozenset((State.SUBSCRIBED,)),
}


def frame(kind: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload) + 4, kind) + payload


OK: Final = frame(FRAME_RESPONSE, b"OK")
HEARTBEAT: Final = frame(FRAME_RESPONSE, b"_heartbeat_")
CLOSE_WAIT: Final = frame(FRAME_RESPONSE, b"CLOSE_WAIT")


class Mark(NamedTuple):
    """Where the replies to this turn's publishes to a topic begin, in case they cannot be stored."""

    topic: Topic
    reply: int
    word: str


class _Incomplete(Exception):
    """The command needs *total* bytes from its first on; *cut* is what to say if they never come."""

    def __init__(self, total: int, cut: ProtocolError | None) -> None:
        super().__init__(total)
        self.total = total
        self.cut = cut


class _Drop(Exception):
    """The connection is closed without a word."""


class Session:
    """The state of one V2 connection."""

    __slots__ = (
        "_commands",
        "_cut",
        "_ended",
        "_have",
        "_keep_for",
        "_marked",
        "_need",
        "_pieces",
        "_publish_lines",
        "_sink",
        "broker",
        "closing",
        "consumer",
        "errors",
        "identity",
        "marks",
        "out",
        "pub_counts",
        "settings",
        "started",
        "state",
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
        self.out: list[bytes] = []
        # The connection is to be closed once `out` is sent.
        self.closing = False
        # Errors of this turn, for the log.
        self.errors: list[ProtocolError] = []
        self.marks: list[Mark] = []
        self.pub_counts: dict[str, int] = {}
        self._sink = sink
        self._keep_for = keep_for
        self._marked: Topic | None = None
        self.started = False
        # A command that is not whole yet: kept in pieces and joined once, when all of it is there.
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = 0
        self._cut: ProtocolError | None = None
        self._ended = False
        # "PUB topic" lines seen before: a publisher's line is taken apart once.
        self._publish_lines: dict[bytes, Topic] = {}
        self._commands: dict[bytes, Callable[[list[bytes], bytes, int, int], int]] = {
            b"IDENTIFY": self._identify,
            b"AUTH": self._auth,
            b"SUB": self._sub,
            b"RDY": self._rdy,
            b"FIN": self._fin,
            b"REQ": self._req,
            b"TOUCH": self._touch,
            b"CLS": self._cls,
            b"NOP": self._nop,
            b"PUB": self._pub,
            b"MPUB": self._mpub,
            b"DPUB": self._dpub,
        }

    # --- what the server calls ---

    def receive(self, data: bytes, now_ns: int) -> None:
        """Apply all commands that are whole now and keep the rest."""
        if self.closing:
            return
        if self._have:
            self._pieces.append(data)
            self._have += len(data)
            if self._have < self._need:
                return
            data = b"".join(self._pieces)
            self._pieces = []
            self._have = 0
            self._cut = None
        start = 0
        try:
            if not self.started:
                start = self._magic(data)
            total = len(data)
            while start < total:
                # Assigned only when the command was whole, so `start` is where an incomplete one begins.
                start = self._command(data, start, now_ns)
        except _Incomplete as missing:
            self._pieces = [data[start:]]
            self._have = len(data) - start
            self._need = missing.total
            self._cut = missing.cut
        except ProtocolError as error:
            self._refuse(error)
        except _Drop:
            self.closing = True

    def end_of_stream(self, now_ns: int) -> None:
        """The peer sends no more: a command cut short inside its body is answered with its error."""
        self._ended = True
        self._need = 0
        if self._have:
            # Once more, now that nothing is to be waited for: the error says what is missing exactly.
            self.receive(b"", now_ns)
        if not self.closing and self._have and self._cut is not None:
            self._refuse(self._cut)
        self.closing = True

    def disconnect(self) -> None:
        """The connection is gone."""
        self.closing = True
        self._publish_lines.clear()
        # They hold this session in a cycle.
        self._commands.clear()
        if self.consumer is not None:
            self.broker.leave(self.consumer)

    def take_replies(self) -> bytes:
        """The replies of this turn; what was published is stored by now."""
        out = self.out[0] if len(self.out) == 1 else b"".join(self.out)
        self.out = []
        self.marks = []
        self._marked = None
        return out

    def not_stored(self, topic: Topic, reason: str) -> None:
        """What this turn published to *topic* could not be stored: say so instead of OK, and close."""
        for mark in self.marks:
            if mark.topic is topic:
                del self.out[mark.reply :]
                self._refuse(ProtocolError(f"E_{mark.word}_FAILED", f"{mark.word} failed {reason}"))
                return

    # --- the loop ---

    def _magic(self, data: bytes) -> int:
        if len(data) < len(MAGIC):
            raise _Incomplete(len(MAGIC), None)
        if not data.startswith(MAGIC):
            raise ProtocolError(codes.E_BAD_PROTOCOL)
        self.started = True
        return len(MAGIC)

    def _command(self, data: bytes, start: int, now_ns: int) -> int:
        """Apply the command at *start* and return where the next one begins."""
        if data.startswith(b"FIN ", start) and self.consumer is not None:
            end = self._fins(data, start, now_ns)
            if end:
                return end
        newline = data.find(b"\n", start, start + MAX_LINE)
        if newline < 0:
            if len(data) - start >= MAX_LINE:
                raise _Drop
            raise _Incomplete(len(data) - start + 1, None)
        line = data[start:newline]
        topic = self._publish_lines.get(line)
        if topic is not None and not topic.exiting:
            return self._publish(topic, "PUB", data, newline + 1, start, now_ns)
        params = line.removesuffix(b"\r").split(b" ")
        word = params[0]
        handler = self._commands.get(word)
        if handler is None:
            raise ProtocolError(codes.E_INVALID, f"invalid command {_text(word)}")
        allowed = ALLOWED.get(word)
        if allowed is not None and self.state not in allowed:
            raise ProtocolError(codes.E_INVALID, f"cannot {_text(word)} in current state")
        try:
            end = handler(params, data, newline + 1, now_ns)
        except _Incomplete as missing:
            raise _Incomplete(missing.total - start, missing.cut) from None
        if word == b"PUB" and self._marked is not None and len(self._publish_lines) < _MAX_PUBLISH_LINES:
            self._publish_lines[line] = self._marked
        return end

    def _refuse(self, error: ProtocolError) -> None:
        self.out.append(frame(FRAME_ERROR, error.payload()))
        self.errors.append(error)
        if error.fatal:
            self.closing = True

    # --- connection ---

    def _identify(self, _params: list[bytes], data: bytes, pos: int, _now_ns: int) -> int:
        body, end = self._body("IDENTIFY", data, pos)
        identity = parse_identity(body)
        settings, negotiated = negotiate(identity, self.broker.limits)
        self.identity = identity
        self.settings = settings
        self.out.append(frame(FRAME_RESPONSE, negotiated.to_json()) if identity.feature_negotiation else OK)
        return end

    def _auth(self, params: list[bytes], data: bytes, pos: int, _now_ns: int) -> int:
        if len(params) != 1:
            raise ProtocolError(codes.E_INVALID, "AUTH invalid number of parameters")
        self._body("AUTH", data, pos)
        raise ProtocolError(codes.E_AUTH_DISABLED, "AUTH disabled")

    def _nop(self, _params: list[bytes], _data: bytes, pos: int, _now_ns: int) -> int:
        return pos

    def _body(self, word: str, data: bytes, pos: int) -> tuple[bytes, int]:
        """The body of IDENTIFY or AUTH and where it ends."""
        size = self._size(data, pos, ProtocolError(codes.E_BAD_BODY, f"{word} failed to read body size"))
        if size > self.broker.limits.max_body_size:
            raise ProtocolError(
                codes.E_BAD_BODY, f"{word} body too big {size} > {self.broker.limits.max_body_size}"
            )
        if size <= 0:
            raise ProtocolError(codes.E_BAD_BODY, f"{word} invalid body size {size}")
        end = pos + 4 + size
        if end > len(data):
            raise _Incomplete(end, ProtocolError(codes.E_BAD_BODY, f"{word} failed to read body"))
        return data[pos + 4 : end], end

    def _size(self, data: bytes, pos: int, cut: ProtocolError) -> int:
        if pos + 4 > len(data):
            raise _Incomplete(pos + 4, cut)
        (size,) = _INT32.unpack_from(data, pos)
        return int(size)

    # --- consuming ---

    def _sub(self, params: list[bytes], _data: bytes, pos: int, now_ns: int) -> int:
        if not self.settings.heartbeat_ms:
            raise ProtocolError(codes.E_INVALID, "cannot SUB with heartbeats disabled")
        if len(params) < 3:
            raise ProtocolError(codes.E_INVALID, "SUB insufficient number of parameters")
        _, topic_name, channel_name = params[:3]
        if not is_valid_name_bytes(topic_name):
            raise ProtocolError(codes.E_BAD_TOPIC, f"SUB topic name {quote(topic_name)} is not valid")
        if not is_valid_name_bytes(channel_name):
            raise ProtocolError(codes.E_BAD_CHANNEL, f"SUB channel name {quote(channel_name)} is not valid")
        settings = self.settings
        keep = self._keep_for(settings.sample_rate) if settings.sample_rate else None
        consumer = Consumer(self._sink, settings.msg_timeout_ns, keep)
        topic = self.broker.topic(topic_name.decode(), now_ns)
        channel = self.broker.channel(topic, channel_name.decode())
        try:
            channel.subscribe(consumer, self.broker.limits.max_channel_consumers)
        except TooManyConsumers as error:
            raise ProtocolError(codes.E_SUB_FAILED, f"SUB failed {error}") from error
        self.consumer = consumer
        self.state = State.SUBSCRIBED
        self.out.append(OK)
        return pos

    def _rdy(self, params: list[bytes], _data: bytes, pos: int, _now_ns: int) -> int:
        if self.state is State.CLOSING:
            return pos
        count = 1
        if len(params) > 1:
            number = _number(params[1])
            if number is None:
                raise ProtocolError(codes.E_INVALID, f"RDY could not parse count {_text(params[1])}")
            count = number - _UINT64 - 1 if number > _INT64_MAX else number
        if not 0 <= count <= self.broker.limits.max_rdy_count:
            raise ProtocolError(
                codes.E_INVALID, f"RDY count {count} out of range 0-{self.broker.limits.max_rdy_count}"
            )
        consumer = self.consumer
        if consumer is not None:
            consumer.rdy = count
            self._served(consumer)
        return pos

    def _cls(self, _params: list[bytes], _data: bytes, pos: int, _now_ns: int) -> int:
        if self.consumer is not None:
            self.consumer.rdy = 0
        self.state = State.CLOSING
        self.out.append(CLOSE_WAIT)
        return pos

    def _fins(self, data: bytes, start: int, now_ns: int) -> int:
        """Apply the FINs at *start* that follow one another; 0 when the first is not an ordinary one."""
        consumer = self.consumer
        if consumer is None or consumer.channel is None:
            return 0
        match = _FINS.match(data, start)
        if match is None:
            return 0
        end = match.end()
        channel = consumer.channel
        ids = self.broker.ids
        while start < end:
            seq = ids.decode_hex(data[start + 4 : start + 4 + ID_LENGTH])
            # A client that answers a delivery from front to back sends text that can be foretold: the
            # ids of the run, one after another. Then the whole batch is finished at once.
            count = min(channel.in_flight.unbroken(seq, consumer), (end - start) // _FIN_LENGTH)
            if count > 1:
                count = min(count, SUFFIX_MASK + 1 - (seq & SUFFIX_MASK))
                low = seq & SUFFIX_MASK
                between = b"\nFIN " + data[start + 4 : start + 16]
                if data.startswith(between.join(SUFFIXES[low : low + count]), start + 16):
                    channel.finish_head(seq, count, consumer, now_ns)
                    start += count * _FIN_LENGTH
                    continue
                # Out of order: from here on each message of the run is looked up by itself.
                channel.in_flight.break_run(seq)
            try:
                channel.finish(seq, consumer, now_ns)
            except NotInFlight as error:
                self._not_answered("FIN", data[start + 4 : start + 4 + ID_LENGTH], error)
            start += _FIN_LENGTH
        self._served(consumer)
        return end

    def _fin(self, params: list[bytes], _data: bytes, pos: int, now_ns: int) -> int:
        message_id = self._message_id("FIN", params, 2)
        consumer = self.consumer
        try:
            if consumer is None or consumer.channel is None:
                raise NotInFlight("ID not in flight")
            consumer.channel.finish(self.broker.ids.decode(message_id), consumer, now_ns)
            self._served(consumer)
        except NotInFlight as error:
            self._not_answered("FIN", message_id, error)
        return pos

    def _req(self, params: list[bytes], _data: bytes, pos: int, now_ns: int) -> int:
        message_id = self._message_id("REQ", params, 3)
        delay_ms = _number(params[2])
        if delay_ms is None:
            raise ProtocolError(codes.E_INVALID, f"REQ could not parse timeout {_text(params[2])}")
        delay_ns = min(delay_ms * _NS_PER_MS, self.broker.limits.max_req_timeout_ns)
        consumer = self.consumer
        try:
            if consumer is None or consumer.channel is None:
                raise NotInFlight("ID not in flight")
            channel = consumer.channel
            channel.requeue(self.broker.ids.decode(message_id), consumer, delay_ns, now_ns)
            if delay_ns:
                self.broker.schedule(channel, now_ns + delay_ns)
            self._served(consumer)
            self.broker.serve(channel)
        except NotInFlight as error:
            self._not_answered("REQ", message_id, error)
        return pos

    def _touch(self, params: list[bytes], _data: bytes, pos: int, now_ns: int) -> int:
        message_id = self._message_id("TOUCH", params, 2)
        consumer = self.consumer
        try:
            if consumer is None or consumer.channel is None:
                raise NotInFlight("ID not in flight")
            channel = consumer.channel
            seq = self.broker.ids.decode(message_id)
            channel.touch(seq, consumer, self.broker.limits.max_msg_timeout_ns, now_ns)
            self.broker.reschedule(channel)
        except NotInFlight as error:
            self._not_answered("TOUCH", message_id, error)
        return pos

    def _message_id(self, word: str, params: list[bytes], at_least: int) -> bytes:
        if len(params) < at_least:
            raise ProtocolError(codes.E_INVALID, f"{word} insufficient number of params")
        if len(params[1]) != ID_LENGTH:
            raise ProtocolError(codes.E_INVALID, "invalid message ID")
        return params[1]

    def _not_answered(self, word: str, message_id: bytes, why: NotInFlight) -> None:
        text = f"{word} {_text(message_id)} failed {why}"
        self._refuse(ProtocolError(f"E_{word}_FAILED", text, fatal=False))

    def _served(self, consumer: Consumer) -> None:
        channel = consumer.channel
        if channel is not None and channel.refresh(consumer):
            self.broker.serve(channel)

    # --- publishing ---

    def _pub(self, params: list[bytes], data: bytes, pos: int, now_ns: int) -> int:
        topic_name = self._topic_name("PUB", params, 2)
        limit = self.broker.limits.max_msg_size
        # Nothing is created for a message that is refused or not there yet.
        self._message("PUB", data, pos, limit)
        topic = self.broker.topic(topic_name, now_ns)
        return self._publish(topic, "PUB", data, pos, 0, now_ns)

    def _publish(self, topic: Topic, word: str, data: bytes, pos: int, start: int, now_ns: int) -> int:
        limit = self.broker.limits.max_msg_size
        body_start = pos + 4
        if body_start <= len(data):
            size = int(_INT32.unpack_from(data, pos)[0])
            end = body_start + size
            if 0 < size <= limit and end <= len(data):
                topic.publish(data[body_start:end], now_ns)
                self._published(topic, word, 1)
                return end
        try:
            self._message(word, data, pos, limit)
        except _Incomplete as missing:
            raise _Incomplete(missing.total - start, missing.cut) from None
        raise AssertionError("a message that is whole and of legal size was not published")

    def _mpub(self, params: list[bytes], data: bytes, pos: int, now_ns: int) -> int:
        if len(params) < 2:
            raise ProtocolError(codes.E_INVALID, "MPUB insufficient number of parameters")
        if not is_valid_name_bytes(params[1]):
            # The doubled code is what clients get from the original.
            raise ProtocolError(
                codes.E_BAD_TOPIC, f"E_BAD_TOPIC MPUB topic name {quote(params[1])} is not valid"
            )
        topic = self.broker.topic(params[1].decode(), now_ns)
        size = self._size(data, pos, ProtocolError(codes.E_BAD_BODY, "MPUB failed to read body size"))
        limits = self.broker.limits
        if size <= 0:
            raise ProtocolError(codes.E_BAD_BODY, f"MPUB invalid body size {size}")
        if size > limits.max_body_size:
            raise ProtocolError(codes.E_BAD_BODY, f"MPUB body too big {size} > {limits.max_body_size}")
        start = pos + 4
        here = len(data) - start
        try:
            if here < size and (self._ended or here <= _LOOK_AHEAD):
                check_sizes(data, start, limits.max_msg_size, limits.max_body_size)
            elif here < size:
                raise _Incomplete(start + size, ProtocolError(codes.E_BAD_MESSAGE, _MPUB_CUT))
            count, end = publish_messages(
                topic,
                data,
                start,
                now_ns,
                max_msg_size=limits.max_msg_size,
                max_body_size=limits.max_body_size,
            )
        except Truncated as cut:
            # The messages' own sizes are believed before the declared one, as the original does.
            raise _Incomplete(cut.need, cut) from None
        self._published(topic, "MPUB", count)
        return end

    def _dpub(self, params: list[bytes], data: bytes, pos: int, now_ns: int) -> int:
        topic_name = self._topic_name("DPUB", params, 3)
        delay_ms = _number(params[2])
        if delay_ms is None:
            raise ProtocolError(codes.E_INVALID, f"DPUB could not parse timeout {_text(params[2])}")
        limits = self.broker.limits
        if delay_ms * _NS_PER_MS > limits.max_req_timeout_ns:
            raise ProtocolError(
                codes.E_INVALID,
                f"DPUB timeout {delay_ms} out of range 0-{limits.max_req_timeout_ns // _NS_PER_MS}",
            )
        end = self._message("DPUB", data, pos, limits.max_msg_size)
        topic = self.broker.topic(topic_name, now_ns)
        body = data[pos + 4 : end]
        if delay_ms:
            topic.publish_deferred(body, now_ns + delay_ms * _NS_PER_MS, now_ns)
        else:
            topic.publish(body, now_ns)
        self._published(topic, "DPUB", 1)
        return end

    def _topic_name(self, word: str, params: list[bytes], at_least: int) -> str:
        if len(params) < at_least:
            raise ProtocolError(codes.E_INVALID, f"{word} insufficient number of parameters")
        if not is_valid_name_bytes(params[1]):
            raise ProtocolError(codes.E_BAD_TOPIC, f"{word} topic name {quote(params[1])} is not valid")
        return params[1].decode()

    def _message(self, word: str, data: bytes, pos: int, limit: int) -> int:
        """Where the message at *pos* ends. Raises ProtocolError, or _Incomplete with an absolute position."""
        size = self._size(
            data, pos, ProtocolError(codes.E_BAD_MESSAGE, f"{word} failed to read message body size")
        )
        if size <= 0:
            raise ProtocolError(codes.E_BAD_MESSAGE, f"{word} invalid message body size {size}")
        if size > limit:
            raise ProtocolError(codes.E_BAD_MESSAGE, f"{word} message too big {size} > {limit}")
        end = pos + 4 + size
        if end > len(data):
            raise _Incomplete(end, ProtocolError(codes.E_BAD_MESSAGE, f"{word} failed to read message body"))
        return end

    def _published(self, topic: Topic, word: str, count: int) -> None:
        if topic is not self._marked:
            self._marked = topic
            self.marks.append(Mark(topic, len(self.out), word))
            self.broker.dirty[topic] = None
        self.out.append(OK)
        name = topic.name
        self.pub_counts[name] = self.pub_counts.get(name, 0) + count


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _number(raw: bytes) -> int | None:
    """A decimal parameter: digits only, nothing is 0, too large wraps around as in the original."""
    if not raw:
        return 0
    if not raw.isdigit():
        return None
    number = 0
    # In pieces, because Python refuses to convert very long ones and a line may be 16 KiB.
    for i in range(0, len(raw), _DIGITS):
        piece = raw[i : i + _DIGITS]
        number = (number * 10 ** len(piece) + int(piece)) & _UINT64
    return number
