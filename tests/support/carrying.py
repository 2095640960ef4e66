"""A copy of a topic in memory, as another nsqd serves it."""

from nsqd.engine import carried
from nsqd.engine.carried_topic import CarriedTopic
from nsqd.engine.topic import Topic
from nsqd.log.gaps import Gap, Why
from nsqd.log.happened import Mark
from nsqd.log.ids import MessageIds
from nsqd.log.tail import NoSource
from nsqd.storage import checkpoint, restoring
from tests.support.engine import NODE_ID, Node

CARRIER_ID = NODE_ID + 1


def copy_of(topic: Topic, node: Node, *, node_id: int = NODE_ID) -> CarriedTopic:
    """Return what *node* recovers from an up-to-date copy; its messages are read from the home's log."""
    end = topic.log.next_seq
    state = checkpoint.decode(checkpoint.encoder(topic, 1, Mark(end, 0, end, end))())
    copy = CarriedTopic(topic.name, "home", MessageIds(node_id), topic.log, node.broker.wall)
    restoring.fill(copy, state)
    copy.log.next_seq = end
    copy.log.had.begin(state.had or [], end)
    copy.pump()
    copy.known_at_home = {one.name: one.generation for one in copy.channels.values()}
    return copy


class _Damaged:
    """A source that can no longer be read; it inherits nothing, because our classes may be compiled."""

    def __init__(self, until: int) -> None:
        self._until = until
        nothing = NoSource()
        self.frames, self.seek = nothing.frames, nothing.seek
        self.page_start, self.weigh = nothing.page_start, nothing.weigh

    def read(self, seq: int, _end: int) -> Gap:
        return Gap(seq, self._until, Why.DAMAGED)


def lose_all_but(topic: Topic, seq: int) -> None:
    """Damage all messages before *seq*."""
    topic.log.source = _Damaged(seq)
    topic.log.keep_only([(seq, topic.log.next_seq)])


class Carrier(Node):
    """Another node, which serves the topic of the first node."""

    def __init__(self, **limits: int) -> None:
        super().__init__(**limits)
        self.broker.ids = MessageIds(CARRIER_ID)

    def carry(self, topic: Topic, serves: list[tuple[int, int]] | None = None) -> CarriedTopic:
        copy = copy_of(topic, self)
        carried.attach(self.broker, copy, self.now_ns, serves)
        self.turn()
        return copy
