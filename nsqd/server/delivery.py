"""Who of a channel's consumers gets what of its waiting messages."""

from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel


def serve(broker: Broker, channel: Channel, now_ns: int) -> None:
    """Deliver until nothing waits or nobody is ready.

    Ready consumers are served in turn. When more waits than one needs, each gets an equal share, so that a
    consumer with a high RDY does not take a whole batch from the others.
    """
    if channel.retry_ns > now_ns:
        # What waits could not be read. The timer may have come for something else, and is to come again.
        broker.schedule(channel, channel.retry_ns)
        return
    channel.stalled = ""
    delivered = False
    left_in_round = share = 0
    while (consumer := channel.next_ready()) is not None:
        if not left_in_round:
            left_in_round = len(channel.ready) + 1
            share = -(-channel.depth // left_in_round)
        left_in_round -= 1
        take = channel.take if consumer.keep is None else channel.take_sampled
        frames = take(consumer, min(share, consumer.credit), now_ns)
        if frames:
            delivered = True
            consumer.sink.send_messages(frames)
        channel.refresh(consumer)
        if channel.stalled:
            broker.stall(channel, now_ns)
            break
    if delivered:
        channel.stalls = 0
        broker.reschedule(channel)
