"""Which of a channel's consumers get which of its waiting messages."""

from typing import Final

from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel
from nsqd.engine.delivering import DRAWN_AT_ONCE, deliver
from nsqd.log.tail import READS_AT_ONCE
from nsqd.server.in_turn import can_be_read, serve_in_turn

# Bytes that a consumer gets in one turn, on average: with more, publishers of small batches would wait long.
TURN_BYTES: Final = 64 << 10


def serve(broker: Broker, channel: Channel, now_ns: int) -> bool:
    """Deliver until no message waits or no consumer is ready; True when the turn is full before that.

    Ready consumers are served in turn. Each gets an equal share of the waiting messages, so that a consumer
    with a high RDY does not take a whole batch from the others. With topology-aware consumption the nearest
    ready consumers share all they can take before the others are served. Messages that a sample rate passes
    over are not sent, so they fill a turn by their number. So do reads of the disk.
    """
    if channel.siblings or channel.host is not None:
        return serve_in_turn(broker, channel.host or channel, now_ns, TURN_BYTES)
    if not can_be_read(broker, channel, now_ns):
        return False
    near = broker.limits.topology_aware
    pending = channel.backlog.pending
    next_ready = channel.next_nearest if near else channel.next_ready
    delivered = False
    room = TURN_BYTES * len(channel.ready)
    drawing = DRAWN_AT_ONCE
    end_reads = channel.log.reads + READS_AT_ONCE
    left_in_round = share = 0
    while room > 0 and drawing > 0 and pending.count and (consumer := next_ready()) is not None:
        if not left_in_round:
            left_in_round = (_as_near(channel, consumer.nearness) if near else len(channel.ready)) + 1
            share = -(-pending.count // left_in_round)
        left_in_round -= 1
        before = consumer.message_count
        limit = min(share, consumer.rdy - consumer.in_flight)
        frames, drawn = deliver(channel, consumer, limit, now_ns)
        drawing -= drawn
        if frames:
            delivered = True
            consumer.sink.send_messages(frames)
            room -= sum(map(len, frames))
            deadline_ns = now_ns + consumer.msg_timeout_ns
            if deadline_ns < channel.wake_ns:
                broker.schedule(channel, deadline_ns)
            if near:
                channel.zones[consumer.nearness] += consumer.message_count - before
        channel.refresh(consumer)
        if channel.stalled:
            broker.stall(channel, now_ns)
            break
        if channel.log.reads >= end_reads:
            room = 0
    if delivered:
        channel.stalls = 0
    return (room <= 0 or drawing <= 0) and pending.count > 0 and bool(channel.ready)


def _as_near(channel: Channel, nearness: int) -> int:
    """How many other ready consumers with credit have this *nearness*."""
    return sum(1 for other in channel.ready if other.nearness == nearness and other.credit > 0)
