"""Who of a channel's consumers gets what of its waiting messages."""

from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel


def serve(broker: Broker, channel: Channel, now_ns: int) -> None:
    """Deliver until nothing waits or nobody is ready.

    Ready consumers are served in turn. When more waits than one needs, each gets an equal share, so that a
    consumer with a high RDY does not take a whole batch from the others.
    """
    delivered = False
    while (consumer := channel.next_ready()) is not None:
        share = consumer.credit
        others = len(channel.ready)
        if others:
            share = min(share, -(-channel.depth // (others + 1)))
        take = channel.take if consumer.keep is None else channel.take_sampled
        frames = take(consumer, share, now_ns)
        if frames:
            delivered = True
            consumer.sink.send_messages(frames)
        channel.refresh(consumer)
    if delivered:
        broker.reschedule(channel)
