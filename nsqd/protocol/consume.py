"""SUB, RDY, FIN, REQ, TOUCH and CLS."""

import re
import struct
from typing import Final

from nsqclient.wire.errors import E_BAD_CHANNEL, E_BAD_TOPIC, E_INVALID, E_SUB_FAILED, ProtocolError
from nsqclient.wire.names import is_valid_name_bytes
from nsqd.engine.channel import Channel, Consumer, TooManyConsumers
from nsqd.engine.in_flight import NotInFlight
from nsqd.log.ids import ID_LENGTH, SEQUENCE_BITS, SUFFIX_MASK, SUFFIXES, MessageIds
from nsqd.protocol.auth import SUBSCRIBE
from nsqd.protocol.connection_state import CLOSE_WAIT, OK, ConnectionState
from nsqd.protocol.identify import nearness
from nsqd.protocol.quote import quote
from nsqd.protocol.reading import number, text
from nsqd.protocol.states import State

_FIN_LENGTH: Final = 4 + ID_LENGTH + 1
_FINS: Final = re.compile(rb"(?:FIN [0-9a-f]{16}\n)+")
_FIN_ID: Final = struct.Struct("4x16sx")
# This many FINs are finished one by one before the next is tried again as the first of a run.
_SCATTERED: Final = 64
_NS_PER_MS: Final = 1_000_000
_UINT64: Final = (1 << 64) - 1
_INT64_MAX: Final = (1 << 63) - 1


def sub(session: ConnectionState, params: list[bytes], _data: bytes, pos: int, now_ns: int) -> int:
    if not session.settings.heartbeat_ms:
        raise ProtocolError(E_INVALID, "cannot SUB with heartbeats disabled")
    if len(params) < 3:
        raise ProtocolError(E_INVALID, "SUB insufficient number of parameters")
    _, topic_name, channel_name = params[:3]
    if not is_valid_name_bytes(topic_name):
        raise ProtocolError(E_BAD_TOPIC, f"SUB topic name {quote(topic_name)} is not valid")
    if not is_valid_name_bytes(channel_name):
        raise ProtocolError(E_BAD_CHANNEL, f"SUB channel name {quote(channel_name)} is not valid")
    session.permit("SUB", SUBSCRIBE, topic_name.decode(), channel_name.decode(), now_ns)
    if session.broker.decommissioning:
        raise ProtocolError(E_SUB_FAILED, "SUB failed the node is decommissioned")
    settings = session.settings
    keep = session.keep_for(settings.sample_rate) if settings.sample_rate else None
    near = nearness(session.broker.limits, session.identity)
    consumer = Consumer(session.sink, settings.msg_timeout_ns, keep, near, extended=settings.extended)
    topic = session.broker.topic(topic_name.decode(), now_ns)
    channel = session.broker.channel(topic, channel_name.decode())
    try:
        channel.subscribe(consumer, session.broker.limits.max_channel_consumers)
    except TooManyConsumers as error:
        raise ProtocolError(E_SUB_FAILED, f"SUB failed {error}") from error
    consumer.client = f"{session.identity.client_id}@{session.identity.hostname}"
    session.consumer = consumer
    session.state = State.SUBSCRIBED
    session.replies.append(OK)
    return pos


def rdy(session: ConnectionState, params: list[bytes], _data: bytes, pos: int, _now_ns: int) -> int:
    if session.state is State.CLOSING:
        return pos
    count = 1
    if len(params) > 1:
        value = number(params[1])
        if value is None:
            raise ProtocolError(E_INVALID, f"RDY could not parse count {text(params[1])}")
        count = value - _UINT64 - 1 if value > _INT64_MAX else value
    if not 0 <= count <= session.broker.limits.max_rdy_count:
        raise ProtocolError(
            E_INVALID, f"RDY count {count} out of range 0-{session.broker.limits.max_rdy_count}"
        )
    consumer = session.consumer
    if consumer is not None:
        consumer.rdy = count
        _served(session, consumer)
    return pos


def cls(session: ConnectionState, _params: list[bytes], _data: bytes, pos: int, _now_ns: int) -> int:
    if session.consumer is not None:
        session.consumer.rdy = 0
    session.state = State.CLOSING
    session.replies.append(CLOSE_WAIT)
    return pos


def fins(session: ConnectionState, data: bytes, start: int, now_ns: int) -> int:
    """Apply consecutive FINs from *start* on; returns where they end, 0 when the first is not a plain one."""
    consumer = session.consumer
    if consumer is None or consumer.channel is None:
        return 0
    match = _FINS.match(data, start)
    if match is None:
        return 0
    end = match.end()
    channel = consumer.channel
    if not channel.siblings:
        _finish(session, channel, session.broker.ids, data, start, end, now_ns)
    else:
        while start < end:
            owner, ids, stop = _of_one(session, channel, data, start, end)
            _finish(session, owner, ids, data, start, stop, now_ns)
            start = stop
    _served(session, consumer)
    return end


def _of_one(
    session: ConnectionState, channel: Channel, data: bytes, start: int, end: int
) -> tuple[Channel, MessageIds, int]:
    """The channel and ids that the first of these FINs belongs to, and where FINs of another nsqd begin."""
    message_id = data[start + 4 : start + 4 + ID_LENGTH]
    owner, _ = owner_of(channel, session.broker.ids, message_id)
    ids = session.broker.ids if owner.ids is None else owner.ids
    known = [session.broker.ids, *(one.ids for one in channel.siblings if one.ids is not None)]
    stop = start + _FIN_LENGTH
    if sum([one.decode_hex(message_id) >= 0 for one in known]) > 1:
        # Two nsqd had one node id, one after the other, so each message is searched by itself.
        return owner, ids, stop
    node_id = int(message_id, 16) >> SEQUENCE_BITS
    while stop < end and int(data[stop + 4 : stop + 4 + ID_LENGTH], 16) >> SEQUENCE_BITS == node_id:
        stop += _FIN_LENGTH
    return owner, ids, stop


def _finish(
    session: ConnectionState,
    channel: Channel,
    ids: MessageIds,
    data: bytes,
    start: int,
    end: int,
    now_ns: int,
) -> None:
    """Apply the FINs between *start* and *end*, which are all for this channel."""
    consumer = session.consumer
    if consumer is None:
        return
    in_flight = channel.backlog.in_flight
    while start < end:
        seq = ids.decode_hex(data[start + 4 : start + 4 + ID_LENGTH])
        # A client that answers a delivery from front to back sends the ids of the run, one after another.
        # These FINs are known in advance, and the whole batch is finished in one call.
        count = min(in_flight.unbroken(seq, consumer), (end - start) // _FIN_LENGTH)
        if count > 1:
            count = min(count, SUFFIX_MASK + 1 - (seq & SUFFIX_MASK))
            low = seq & SUFFIX_MASK
            between = b"\nFIN " + data[start + 4 : start + 16]
            if data.startswith(between.join(SUFFIXES[low : low + count]), start + 16):
                channel.finish(range(seq, seq + count), consumer, now_ns)
                start += count * _FIN_LENGTH
                continue
            # Out of order: from here on each message of the run is searched by itself.
            in_flight.break_run(seq)
        stop = min(end, start + _FIN_LENGTH * _SCATTERED)
        message_ids = [message_id for (message_id,) in _FIN_ID.iter_unpack(data[start:stop])]
        seqs = list(map(ids.decode_hex, message_ids))
        for i, why in channel.finish(seqs, consumer, now_ns):
            _not_answered(session, "FIN", message_ids[i], why)
        start = stop


def fin(session: ConnectionState, params: list[bytes], _data: bytes, pos: int, now_ns: int) -> int:
    message_id = _message_id("FIN", params, 2)
    consumer = session.consumer
    try:
        if consumer is None or consumer.channel is None:
            raise NotInFlight("ID not in flight")
        channel, seq = owner_of(consumer.channel, session.broker.ids, message_id)
        for _, why in channel.finish([seq], consumer, now_ns):
            raise why
        _served(session, consumer)
    except NotInFlight as error:
        _not_answered(session, "FIN", message_id, error)
    return pos


def req(session: ConnectionState, params: list[bytes], _data: bytes, pos: int, now_ns: int) -> int:
    message_id = _message_id("REQ", params, 3)
    delay_ms = number(params[2])
    if delay_ms is None:
        raise ProtocolError(E_INVALID, f"REQ could not parse timeout {text(params[2])}")
    consumer = session.consumer
    try:
        if consumer is None or consumer.channel is None:
            raise NotInFlight("ID not in flight")
        channel, seq = owner_of(consumer.channel, session.broker.ids, message_id)
        longest_ns = channel.settings.max_defer_ns or session.broker.limits.max_req_timeout_ns
        delay_ns = min(delay_ms * _NS_PER_MS, longest_ns)
        due_ns = channel.requeue(seq, consumer, delay_ns, now_ns)
        if due_ns:
            session.broker.defer(channel, seq, due_ns)
        _served(session, consumer)
        session.broker.serve(channel)
    except NotInFlight as error:
        _not_answered(session, "REQ", message_id, error)
    return pos


def touch(session: ConnectionState, params: list[bytes], _data: bytes, pos: int, now_ns: int) -> int:
    message_id = _message_id("TOUCH", params, 2)
    consumer = session.consumer
    try:
        if consumer is None or consumer.channel is None:
            raise NotInFlight("ID not in flight")
        channel, seq = owner_of(consumer.channel, session.broker.ids, message_id)
        channel.touch(seq, consumer, session.broker.limits.max_msg_timeout_ns, now_ns)
        session.broker.reschedule(channel)
    except NotInFlight as error:
        _not_answered(session, "TOUCH", message_id, error)
    return pos


def owner_of(channel: Channel, ids: MessageIds, message_id: bytes) -> tuple[Channel, int]:
    """The channel and the sequence of this id; *channel* and its sequence where no sibling has it in flight.

    Two nsqd may have had the same node id, one after the other. Then the channel that has the message in
    flight is taken, and *channel* comes first if the id has the present node id of this nsqd.
    """
    seq = ids.decode(message_id)
    if not channel.siblings or (
        seq == ids.current(message_id) and seq >= 0 and channel.backlog.in_flight.has(seq)
    ):
        return channel, seq
    for sibling in channel.siblings:
        theirs = -1 if sibling.ids is None else sibling.ids.decode(message_id)
        if theirs >= 0 and sibling.backlog.in_flight.has(theirs):
            return sibling, theirs
    return channel, seq


def _message_id(word: str, params: list[bytes], at_least: int) -> bytes:
    if len(params) < at_least:
        raise ProtocolError(E_INVALID, f"{word} insufficient number of params")
    if len(params[1]) != ID_LENGTH:
        raise ProtocolError(E_INVALID, "invalid message ID")
    return params[1]


def _not_answered(session: ConnectionState, word: str, message_id: bytes, why: NotInFlight) -> None:
    sentence = f"{word} {text(message_id)} failed {why}"
    session.refuse(ProtocolError(f"E_{word}_FAILED", sentence, fatal=False))


def _served(session: ConnectionState, consumer: Consumer) -> None:
    channel = consumer.channel
    if channel is not None and channel.refresh(consumer):
        session.broker.serve(channel)
