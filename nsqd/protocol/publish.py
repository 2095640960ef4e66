"""PUB, MPUB and DPUB; and PUB_EXT and MPUB_EXT of youzan's NSQ, whose messages have headers."""

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from nsqclient.wire.errors import (
    E_BAD_BODY,
    E_BAD_MESSAGE,
    E_BAD_TOPIC,
    E_INVALID,
    E_MPUB_FAILED,
    ProtocolError,
)
from nsqclient.wire.names import is_valid_name_bytes
from nsqd.engine.topic import Draining, Refused, Topic
from nsqd.log.frames import view_of
from nsqd.log.headers import LENGTH_BYTES, SOME_HEADERS
from nsqd.protocol import extended as extended_messages
from nsqd.protocol.auth import PUBLISH
from nsqd.protocol.batch import TooLong, Truncated, check_begun, read_batch
from nsqd.protocol.connection_state import OK, ConnectionState, LongBatch, StagedPublish
from nsqd.protocol.extended import MAX_ADDED_BYTES, SIZES
from nsqd.protocol.long_body import ONE, ONE_OVERHEAD, LongBody
from nsqd.protocol.quote import quote
from nsqd.protocol.reading import Incomplete, Suspended, message_end, number, text

_INT32: Final = struct.Struct(">i")
_NS_PER_MS: Final = 1_000_000
# An incomplete MPUB is examined while at most so much of it has arrived: a peer may declare a longer body
# than it sends, and wait for the answer. Beyond that, examining it costs more than such peers are worth.
_LOOK_AHEAD: Final = 16_384
_MPUB_CUT: Final = "MPUB failed to read message body"


def pub(session: ConnectionState, params: list[bytes], data: bytes, pos: int, now_ns: int) -> int:
    topic_name = _topic_name("PUB", params, 2)
    # Nothing is created for a message that is refused or has not arrived yet.
    message_end("PUB", data, pos, session.broker.limits.max_msg_size)
    session.permit("PUB", PUBLISH, topic_name, "", now_ns)
    return publish_line(session, session.broker.topic_to_publish(topic_name, now_ns), data, pos, now_ns)


def publish_line(session: ConnectionState, topic: Topic, data: bytes, pos: int, now_ns: int) -> int:
    """Apply a PUB whose line is parsed; the fast path of a client that publishes single messages."""
    limit = session.broker.limits.max_msg_size
    body = pos + 4
    if body <= len(data):
        end = body + int(_INT32.unpack_from(data, pos)[0])
        if body < end <= len(data) and end - body <= limit:
            topic.stage(view_of(data, body, end), now_ns)
            _published(session, topic, "PUB", 1)
            return end
    message_end("PUB", data, pos, limit)
    raise AssertionError("a message that is whole and of legal size was not published")


def pub_ext(session: ConnectionState, params: list[bytes], data: bytes, pos: int, now_ns: int) -> int:
    topic_name = _topic_name("PUB_EXT", params, 2)
    limit = session.broker.limits.max_msg_size
    end = message_end("PUB_EXT", data, pos, limit + MAX_ADDED_BYTES)
    extended_messages.message(data, pos + 4, end, limit)
    session.permit("PUB_EXT", PUBLISH, topic_name, "", now_ns)
    return pub_ext_line(session, session.broker.topic_to_publish(topic_name, now_ns), data, pos, now_ns)


def pub_ext_line(session: ConnectionState, topic: Topic, data: bytes, pos: int, now_ns: int) -> int:
    """Apply a PUB_EXT whose line is parsed."""
    limit = session.broker.limits.max_msg_size
    start = pos + 4
    if start + LENGTH_BYTES <= len(data):
        size, length = SIZES.unpack_from(data, pos)
        end = start + int(size)
        body = start + LENGTH_BYTES + int(length)
        if length and body < end <= len(data) and end - body <= limit:
            extended_messages.check_headers("PUB_EXT", data[start + LENGTH_BYTES : body])
            topic.stage_extended(SOME_HEADERS + data[start:end], 1 + body - start, now_ns)
            _published(session, topic, "PUB", 1)
            return end
    end = message_end("PUB_EXT", data, pos, limit + MAX_ADDED_BYTES)
    extension, found = extended_messages.message(data, start, end, limit)
    topic.stage(found, now_ns, 0, extension)
    _published(session, topic, "PUB", 1)
    return end


def mpub(session: ConnectionState, params: list[bytes], data: bytes, pos: int, now_ns: int) -> int:
    topic = _topic_of_mpub(session, params, data, pos, now_ns)
    return mpub_line(session, topic, data, pos, now_ns)


def mpub_ext(session: ConnectionState, params: list[bytes], data: bytes, pos: int, now_ns: int) -> int:
    topic = _topic_of_mpub(session, params, data, pos, now_ns)
    return mpub_ext_line(session, topic, data, pos, now_ns)


def _topic_of_mpub(
    session: ConnectionState, params: list[bytes], data: bytes, pos: int, now_ns: int
) -> Topic:
    if len(params) < 2:
        raise ProtocolError(E_INVALID, "MPUB insufficient number of parameters")
    if not is_valid_name_bytes(params[1]):
        # The original sends the doubled code as well.
        raise ProtocolError(E_BAD_TOPIC, f"E_BAD_TOPIC MPUB topic name {quote(params[1])} is not valid")
    topic_name = params[1].decode()
    session.permit("MPUB", PUBLISH, topic_name, "", now_ns)
    if session.broker.draining:
        _wait_for_body(session, data, pos)
    return session.broker.topic_to_publish(topic_name, now_ns)


def mpub_line(session: ConnectionState, topic: Topic, data: bytes, pos: int, now_ns: int) -> int:
    """Apply an MPUB whose line is parsed."""
    return _mpub(session, topic, data, pos, now_ns, extended=False)


def mpub_ext_line(session: ConnectionState, topic: Topic, data: bytes, pos: int, now_ns: int) -> int:
    """Apply an MPUB_EXT whose line is parsed."""
    return _mpub(session, topic, data, pos, now_ns, extended=True)


def _mpub(
    session: ConnectionState, topic: Topic, data: bytes, pos: int, now_ns: int, *, extended: bool
) -> int:
    start = pos + 4
    if start > len(data):
        raise Incomplete(start, ProtocolError(E_BAD_BODY, "MPUB failed to read body size"))
    size = int(_INT32.unpack_from(data, pos)[0])
    limits = session.broker.limits
    if size <= 0:
        raise ProtocolError(E_BAD_BODY, f"MPUB invalid body size {size}")
    if size > limits.max_body_size:
        raise ProtocolError(E_BAD_BODY, f"MPUB body too big {size} > {limits.max_body_size}")
    here = len(data) - start
    if here >= size > ONE_OVERHEAD and not extended and data.startswith(ONE, start):
        # Clients that publish single messages with MPUB send this.
        length = size - ONE_OVERHEAD
        if _INT32.unpack_from(data, start + len(ONE))[0] == length <= limits.max_msg_size:
            topic.stage(view_of(data, start + ONE_OVERHEAD, start + size), now_ns)
            _published(session, topic, "MPUB", 1)
            return start + size
    try:
        if here < size:
            if not session.ended and here > _LOOK_AHEAD:
                raise Incomplete(start + size, ProtocolError(E_BAD_MESSAGE, _MPUB_CUT))
            more = MAX_ADDED_BYTES if extended else 0
            check_begun(data, start, limits.max_msg_size + more, limits.max_body_size)
        batch, end = read_batch(
            data,
            start,
            max_msg_size=limits.max_msg_size,
            max_body_size=limits.max_body_size,
            extended=extended,
        )
    except Truncated as cut:
        # The sizes of the messages count, not the declared size of the body, as in the original.
        raise Incomplete(cut.need, cut) from None
    except TooLong as long:
        session.start_batch(LongBatch(topic, long.slices))
        raise Suspended(None) from None
    topic.stage_batch(batch, now_ns)
    _published(session, topic, "MPUB", batch.count)
    return end


def publish_long(session: ConnectionState, topic: Topic, body: LongBody, now_ns: int) -> None:
    """Publish the message of a PUB, or of an MPUB of one message, that was received in its place."""
    word = text(body.line.split(b" ", 1)[0])
    try:
        topic.stage_frame(body.frame(), now_ns)
    except Refused as refused:
        session.refuse(refusal(word, refused))
    else:
        _published(session, topic, word, 1)


def dpub(session: ConnectionState, params: list[bytes], data: bytes, pos: int, now_ns: int) -> int:
    topic_name = _topic_name("DPUB", params, 3)
    delay_ms = number(params[2])
    if delay_ms is None:
        raise ProtocolError(E_INVALID, f"DPUB could not parse timeout {text(params[2])}")
    longest_ns = session.broker.max_defer_ns(topic_name)
    if delay_ms * _NS_PER_MS > longest_ns:
        raise ProtocolError(E_INVALID, f"DPUB timeout {delay_ms} out of range 0-{longest_ns // _NS_PER_MS}")
    end = message_end("DPUB", data, pos, session.broker.limits.max_msg_size)
    session.permit("DPUB", PUBLISH, topic_name, "", now_ns)
    topic = session.broker.topic_to_publish(topic_name, now_ns)
    due_ns = now_ns + delay_ms * _NS_PER_MS if delay_ms else 0
    topic.stage(data[pos + 4 : end], now_ns, due_ns)
    _published(session, topic, "DPUB", 1)
    return end


def _topic_name(word: str, params: list[bytes], at_least: int) -> str:
    if len(params) < at_least:
        raise ProtocolError(E_INVALID, f"{word} insufficient number of parameters")
    if not is_valid_name_bytes(params[1]):
        raise ProtocolError(E_BAD_TOPIC, f"{word} topic name {quote(params[1])} is not valid")
    return params[1].decode()


def _wait_for_body(session: ConnectionState, data: bytes, pos: int) -> None:
    """Delay refusing an MPUB until its body is there: an earlier close could cost the client the error."""
    end = pos + 4
    if end <= len(data):
        size = int(_INT32.unpack_from(data, pos)[0])
        end += size if 0 < size <= session.broker.limits.max_body_size else 0
    if end > len(data):
        raise Incomplete(end, refusal("MPUB", Draining()))


def refusal(word: str, refused: Refused) -> ProtocolError:
    """The error for a command that was refused. The connection closes, which makes clients fail over."""
    word = word.removesuffix("_EXT")
    return ProtocolError(f"E_{word}_FAILED", f"{word} failed {refused}")


def publish_slice(session: ConnectionState, batch: LongBatch, now_ns: int) -> bool:
    """Publish the next slice of a batch; True when it is answered.

    Raises ProtocolError, Truncated and Refused.
    """
    topic, slices = batch
    if topic.deleted:
        raise ProtocolError(E_MPUB_FAILED, "MPUB failed exiting")
    slice_ = slices.take()
    if slice_ is None:
        _published(session, topic, "MPUB", slices.count)
        return True
    if slice_.count:
        topic.stage_batch(slice_, now_ns)
        _note_staged(session, topic, "MPUB")
    return False


def _published(session: ConnectionState, topic: Topic, word: str, count: int) -> None:
    if topic is not session.marked:
        _note_staged(session, topic, word)
    session.replies.append(OK)
    name = topic.name
    session.pub_counts[name] = session.pub_counts.get(name, 0) + count


def _note_staged(session: ConnectionState, topic: Topic, word: str) -> None:
    """Note that something staged at *topic* is to be stored: later replies in ``out`` depend on that."""
    session.marked = topic
    session.staged.append(StagedPublish(topic, len(session.replies), word))
    session.broker.dirty[topic] = None


# The rest of a command whose line was parsed before, so that each line is parsed only once.
AfterLine: TypeAlias = Callable[[ConnectionState, Topic, bytes, int, int], int]
AFTER_LINE: Final[dict[bytes, AfterLine]] = {
    b"PUB": publish_line,
    b"MPUB": mpub_line,
    b"PUB_EXT": pub_ext_line,
    b"MPUB_EXT": mpub_ext_line,
}
