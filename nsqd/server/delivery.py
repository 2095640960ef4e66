"""Which of a channel's consumers get which of its waiting messages.

The logs of a channel are its own and those of its siblings, the channels of promoted copies. They take turns,
by bytes: a backlog of ten million messages that another nsqd left does not delay what is published now.
"""

from typing import Final

from nsqd.engine.bounds import apply_limits
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel
from nsqd.engine.delivering import MAX_SAMPLED_PER_TURN, deliver
from nsqd.engine.settings import NOTHING
from nsqd.log.tail import MAX_READS_PER_TURN

# Bytes that a consumer gets in one turn, on average: with more, publishers of small batches would wait long.
BYTES_PER_TURN: Final = 64 << 10


def serve(broker: Broker, channel: Channel, now_ns: int) -> bool:
    """Deliver until no message waits or no consumer is ready; True when the turn is full before that.

    Ready consumers are served in turn. Each gets an equal share of the waiting messages, so that a consumer
    with a high RDY does not take a whole batch from the others. With topology-aware consumption the nearest
    ready consumers share all they can take before the others are served. Messages that a sample rate passes
    over are not sent, so they fill a turn by their number. So do reads of the disk.
    """
    host = channel.host or channel
    siblings = [one for one in host.siblings if _can_be_read(broker, one, now_ns)] if host.siblings else []
    logs = [host, *siblings] if _can_be_read(broker, host, now_ns) else siblings
    near = broker.limits.topology_aware
    next_ready = host.next_nearest if near else host.next_ready
    room = BYTES_PER_TURN * max(1, len(host.ready))
    drawing = MAX_SAMPLED_PER_TURN
    # The logs of a node count its reads together.
    end_reads = host.log.reads + MAX_READS_PER_TURN
    has_read = False
    left_in_round = share = 0
    while room > 0 and drawing > 0 and not has_read and (log := _next_of(logs)) is not None:
        consumer = next_ready()
        if consumer is None:
            break
        if not left_in_round:
            left_in_round = (_as_near(host, consumer.nearness) if near else len(host.ready)) + 1
            waiting = log.backlog.pending.count
            if len(logs) > 1:
                waiting = sum([one.backlog.pending.count for one in logs])
            share = -(-waiting // left_in_round)
        left_in_round -= 1
        before = consumer.message_count
        limit = min(share, consumer.rdy - consumer.in_flight)
        frames, drawn = deliver(log, consumer, limit, now_ns, end_reads)
        drawing -= drawn
        if frames:
            log.stalls = 0
            consumer.sink.send_messages(frames)
            size = sum(map(len, frames))
            room -= size
            if len(logs) > 1:
                log.served_bytes += size
            deadline_ns = now_ns + consumer.msg_timeout_ns
            if deadline_ns < log.wake_ns:
                broker.schedule(log, deadline_ns)
            if near:
                log.zones[consumer.nearness] += consumer.message_count - before
        host.refresh(consumer)
        if log.stalled:
            broker.stall(log, now_ns)
            logs.remove(log)
        has_read = log.backlog.pending.count > 0 and log.log.reads >= end_reads
    return (room <= 0 or drawing <= 0 or has_read) and bool(host.ready) and _next_of(logs) is not None


def _can_be_read(broker: Broker, log: Channel, now_ns: int) -> bool:
    """Drop what has expired; False while the waiting messages cannot be read."""
    settings = log.settings
    if settings is not NOTHING and (settings.ttl_ns or settings.drop_oldest):
        again_ns = apply_limits(log, now_ns)
        if again_ns:
            broker.schedule(log, again_ns)
    if log.retry_ns > now_ns:
        # The timer may have been for something else: set it again.
        broker.schedule(log, log.retry_ns)
        return False
    log.stalled = ""
    return True


def _next_of(logs: list[Channel]) -> Channel | None:
    """The log with waiting messages that was served least; a log without messages gains no advantage."""
    if len(logs) == 1:
        only = logs[0]
        return only if only.backlog.pending.count and not only.paused else None
    waiting = [one for one in logs if one.backlog.pending.count and not one.paused]
    if not waiting:
        return None
    found = min(waiting, key=_served_bytes)
    for one in logs:
        one.served_bytes = max(one.served_bytes, found.served_bytes)
    return found


def _served_bytes(log: Channel) -> int:
    return log.served_bytes


def _as_near(channel: Channel, nearness: int) -> int:
    """How many other ready consumers with credit have this *nearness*."""
    return sum(1 for other in channel.ready if other.nearness == nearness and other.credit > 0)
