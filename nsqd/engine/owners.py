"""Whose a message is that a consumer answers: of the channel, or of a log that is carried beside it."""

from nsqd.engine.channel import Channel
from nsqd.log.ids import MessageIds


def owner_of(channel: Channel, ids: MessageIds, message_id: bytes) -> tuple[Channel, int]:
    """The channel and the sequence of this id; those of *channel*, with *ids*, where no sibling has it.

    Two nsqd may have had one node id, one after the other: then it counts who has it in flight, and first
    what this nsqd is called now.
    """
    seq = ids.decode(message_id)
    if not channel.siblings or (seq == ids.current(message_id) and seq >= 0 and channel.in_flight.has(seq)):
        return channel, seq
    for sibling in channel.siblings:
        theirs = -1 if sibling.ids is None else sibling.ids.decode(message_id)
        if theirs >= 0 and sibling.in_flight.has(theirs):
            return sibling, theirs
    return channel, seq
