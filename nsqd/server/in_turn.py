"""Delivery of a channel and its siblings, the channels of promoted copies: the logs take turns, by bytes.

So a backlog of ten million messages that another nsqd left does not delay what is published now.
"""

from nsqd.engine.bounds import apply_limits
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel
from nsqd.engine.delivering import DRAWN_AT_ONCE, deliver
from nsqd.engine.settings import NOTHING
from nsqd.log.tail import READS_AT_ONCE


def serve_in_turn(broker: Broker, host: Channel, now_ns: int, turn_bytes: int) -> bool:
    """Deliver until no message waits or no consumer is ready; True when the turn is full before that.

    See `delivery.serve`; a consumer's share is here a share of the waiting messages of all logs.
    """
    logs = [one for one in (host, *host.siblings) if can_be_read(broker, one, now_ns)]
    if host.paused:
        return False
    near = broker.limits.topology_aware
    next_ready = host.next_nearest if near else host.next_ready
    delivered: set[Channel] = set()
    room = turn_bytes * max(1, len(host.ready))
    drawing = DRAWN_AT_ONCE
    reads = READS_AT_ONCE
    left_in_round = share = 0
    while room > 0 and drawing > 0 and reads > 0 and (log := _next_of(logs)) is not None:
        consumer = next_ready()
        if consumer is None:
            break
        if not left_in_round:
            left_in_round = len(host.ready) + 1
            share = -(-sum([one.backlog.pending.count for one in logs]) // left_in_round)
        left_in_round -= 1
        before = consumer.message_count
        limit = min(share, consumer.credit)
        reads += log.log.reads
        frames, drawn = deliver(log, consumer, limit, now_ns)
        reads -= log.log.reads
        drawing -= drawn
        if frames:
            delivered.add(log)
            consumer.sink.send_messages(frames)
            size = sum(map(len, frames))
            room -= size
            log.served_bytes += size
            if near:
                log.zones[consumer.nearness] += consumer.message_count - before
        host.refresh(consumer)
        if log.stalled:
            broker.stall(log, now_ns)
            logs.remove(log)
    for log in delivered:
        log.stalls = 0
        broker.reschedule(log)
    return (room <= 0 or drawing <= 0 or reads <= 0) and bool(host.ready) and _next_of(logs) is not None


def can_be_read(broker: Broker, channel: Channel, now_ns: int) -> bool:
    """Let go of what has expired; False while the waiting messages cannot be read."""
    settings = channel.settings
    if settings is not NOTHING and (settings.ttl_ns or settings.drop_oldest):
        again_ns = apply_limits(channel, now_ns)
        if again_ns:
            broker.schedule(channel, again_ns)
    if channel.retry_ns > now_ns:
        # The timer may have been for something else: set it again.
        broker.schedule(channel, channel.retry_ns)
        return False
    channel.stalled = ""
    return True


def _next_of(logs: list[Channel]) -> Channel | None:
    """The log with waiting messages that was served least; a log without messages gains no advantage."""
    waiting = [one for one in logs if one.backlog.pending.count and not one.paused]
    if not waiting:
        return None
    found = min(waiting, key=_served_bytes)
    for one in logs:
        one.served_bytes = max(one.served_bytes, found.served_bytes)
    return found


def _served_bytes(channel: Channel) -> int:
    return channel.served_bytes
