"""Which log a message belongs to that a consumer answers: the channel's, or that of a promoted copy."""

from nsqd.engine.channel import Channel
from nsqd.log.ids import MessageIds


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
