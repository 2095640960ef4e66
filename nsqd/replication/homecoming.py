"""What a home does with what its keepers tell: it learns what is finished, and waits for what is in flight.

No socket, no clock; `serving.AskingKeepers` decides how long it waits.
"""

from collections.abc import Callable, Iterable

from nsqd.engine import carried, facts
from nsqd.engine.broker import Broker
from nsqd.engine.facts import ChannelFacts
from nsqd.engine.topic import Topic
from nsqd.log.ranges import Ranges, merged
from nsqd.replication.frames import AnyFrame, Finished, StillOut, Told
from nsqd.replication.serving import AskingKeepers


class ComingHome:
    """The logs of this node, as far as others may have given them out."""

    def __init__(
        self,
        broker: Broker,
        keepers: Iterable[str],
        ask_ns: int,
        now_ns: int,
        stored: Callable[[Topic], Ranges],
    ) -> None:
        """*keepers* are all that may have carried; *stored* gives what can be read of a topic."""
        self._broker = broker
        self._stored = stored
        self._ask_ns = ask_ns
        keepers = list(keepers)
        self._asking = AskingKeepers(keepers, ask_ns, now_ns)
        # In flight elsewhere: by keeper, topic and channel.
        self._out: dict[str, dict[str, dict[str, Ranges]]] = {}
        self._gone_ns: dict[str, int] = {}
        self.learned = 0
        self._holding = bool(keepers)
        if self._holding:
            for topic in broker.topics.values():
                if not topic.ephemeral:
                    carried.hold_back(topic, [(0, topic.log.next_seq)])

    @property
    def is_holding(self) -> bool:
        """Whether anything is held back."""
        return self._holding

    def heard(self, keeper: str, topic_name: str, frame: AnyFrame) -> None:
        """A keeper that carried tells what it finished, or what it has in flight."""
        topic = self._broker.topics.get(topic_name)
        if isinstance(frame, Told):
            self._asking.answered(keeper)
        if topic is None or topic.ephemeral:
            return
        if isinstance(frame, Finished):
            told = ChannelFacts(frame.generation, merged(list(frame.ranges)))
            self.learned += carried.learn(
                self._broker, topic, frame.channel, told, higher=False, stored=lambda: self._stored(topic)
            )
        elif isinstance(frame, StillOut):
            ranges = merged(list(frame.ranges))
            self._out.setdefault(keeper, {}).setdefault(topic_name, {})[frame.channel] = ranges
            self._gone_ns.pop(keeper, None)
            if ranges:
                self._holding = True
                carried.hold_back(topic, ranges, [frame.channel])

    def holdings(self, topic_name: str) -> tuple[Ranges, dict[str, ChannelFacts]]:
        """What can be read of a topic here, and what is finished."""
        topic = self._broker.topics.get(topic_name)
        if topic is None:
            return [], {}
        return facts.readable(topic, self._stored(topic)), facts.all_facts(topic)

    def settled(self, topic_name: str) -> Ranges:
        """The messages of a topic of which nobody needs a copy."""
        topic = self._broker.topics.get(topic_name)
        return [] if topic is None else facts.settled(topic, self._stored(topic))

    def went(self, keeper: str, now_ns: int) -> None:
        """The connection to a keeper is gone."""
        if keeper in self._out:
            self._gone_ns.setdefault(keeper, now_ns)

    def tick(self, now_ns: int) -> None:
        """Give out what no longer has to be held back."""
        if not self._holding or not self._asking.is_over(now_ns):
            return
        if self._broker.leaving:
            # What is held back is held for the node that takes over.
            return
        for keeper, gone_ns in list(self._gone_ns.items()):
            if now_ns - gone_ns >= self._ask_ns:
                # Messages that are in flight there will be delivered once more.
                del self._out[keeper], self._gone_ns[keeper]
        self._holding = False
        for topic in self._broker.topics.values():
            still = self._still_out(topic.name)
            carried.give_out(self._broker, topic, still)
            self._holding = self._holding or any(still.values())

    def _still_out(self, topic_name: str) -> dict[str, Ranges]:
        found: dict[str, Ranges] = {}
        for topics in self._out.values():
            for channel, ranges in topics.get(topic_name, {}).items():
                found[channel] = merged([*found.get(channel, []), *ranges])
        return found
