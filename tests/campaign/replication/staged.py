"""Histories that need one rule, sync or note of replication: a few steps, with random counts and times.

Random events reach such a history once in hundreds or thousands of seeds. Node 1 is the origin of all
messages.
"""

import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from nsqd.replication.frames import CopyKind, Holder
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_stream import ReplicaSettings, StreamState
from tests.campaign.replication.faults import copied
from tests.campaign.replication.histories import CHANNELS, KNOWN_AFTER, TOPICS, History
from tests.campaign.replication.node import SECOND, Reader, SimulatedNode
from tests.campaign.replication.site import Site

_TOPIC, _OTHER_TOPIC = TOPICS
# Longer than the failover timeout, the stagger and the silence that ends a connection.
_FAILOVER_S: Final = 45
_KNOWN_S: Final = KNOWN_AFTER / SECOND + 1
_ALL: Final = 100


class Staged(History):
    """One stage, with the random numbers of one seed."""

    def __init__(self, seed: int, stage: str) -> None:
        super().__init__(seed, stage)
        # Messages of deleted channels, which are not to be sent any more: topic, channel, body.
        self.deleted: set[tuple[str, str, bytes]] = set()

    def run(self, steps: int = 0) -> "Staged":
        del steps
        STAGES[self.profile](self)
        return self

    def _sent(self, number: int, topic: str, channel: str, body: bytes) -> None:
        if (topic, channel, body) in self.deleted:
            self.wrong.append(f"{body.decode()} of the deleted channel {channel} was sent by node {number}")
        super()._sent(number, topic, channel, body)

    # --- steps ---

    def begin(self, nodes: int, *channels: str, strict: bool = False, catch_up_rate: int = 1 << 30) -> None:
        """Start nodes, each with a replica; node 1 has these channels."""
        settings = ReplicaSettings(replicas=1, strict=strict, catch_up_rate=catch_up_rate)
        self.use(Site(nodes, self.rng, settings, is_prompt=True))
        for channel in channels:
            self.node(1).channel(_TOPIC, channel)
        self.wait(8)

    def node(self, number: int) -> SimulatedNode:
        return self.site.nodes[number]

    def wait(self, seconds: float = 1.0) -> None:
        self.site.advance(seconds)
        self.site.settle()

    def wait_until(self, happens: Callable[[], bool], seconds: float = 60) -> bool:
        """Wait in steps of half a second; false if it has not happened."""
        for _ in range(int(2 * seconds)):
            if happens():
                return True
            self.wait(0.5)
        return happens()

    def publish_some(self) -> None:
        self.publish_at(self.node(1), _TOPIC, self.rng.randint(2, 8))
        self.site.settle()

    def take(self, number: int, channel: str, count: int = _ALL) -> int:
        """Finish messages; returns how many."""
        node = self.node(number)
        reader = node.read(_TOPIC, channel, count)
        done = 0
        while done < count and (new := reader.take()[: count - done]):
            for message in new:
                self._answer(node, reader, message, "FIN")
            done += len(new)
        node.leave(reader)
        return done

    def read(self, number: int, channel: str = CHANNELS[0], rdy: int = _ALL) -> Reader:
        """A consumer that stays, with the messages that it gets immediately."""
        node = self.node(number)
        reader = node.read(_TOPIC, channel, rdy)
        self._readers.append((node, reader))
        reader.take()
        return reader

    def part_from(self, number: int) -> None:
        """No other node reaches this one."""
        self.site.cut_off = {number}
        for line in list(self.site.lines):
            if number in (line.connector, line.acceptor):
                self.site.cut(line)

    def power_cut(self, number: int) -> None:
        self.site.power_cut(number)

    def replica(self) -> int:
        """The node that is the replica of node 1."""
        (identity,) = self.node(1).replication.state.replicas
        found = self.site.node_with(identity)
        assert found is not None
        return found.number

    def use_replicas(self, *numbers: int) -> None:
        """Let node 1 stream to these nodes."""
        nodes = [self.node(number) for number in numbers]
        self.node(1).replication.set_replicas(tuple(Holder(one.identity, one.address) for one in nodes))
        self.node(1).work()

    def has_no_copy(self, number: int) -> bool:
        log = self.node(number).replication.logs.get(self.site.identities[1])
        return log is None or not log.copies

    def copy_of_node_1(self, number: int) -> LocalCopy | None:
        """The open or promoted copy of node 1's log."""
        log = self.node(number).replication.logs.get(self.site.identities[1])
        copies = [] if log is None else log.copies
        return next((one for one in copies if one.kind != CopyKind.STREAMED), None)

    def has_taken_over(self, number: int) -> bool:
        copy = self.copy_of_node_1(number)
        return copy is not None and copy.is_owner

    def is_fully_replicated(self, number: int) -> bool:
        log = self.node(number).replication.logs.get(self.site.identities[1])
        now = self.node(number).now
        return log is not None and any(log.counted(one, 0, now) is not None for one in log.copies)

    def delete_at(self, number: int, channel: str) -> set[tuple[str, str, bytes]]:
        """Delete a channel; returns its messages."""
        node, bodies = self.node(number), set(self.promises.made)
        node.forget_readers(_TOPIC, channel)
        self.promises.waive(_TOPIC, {self.site.identities[1]}, channel)
        node.broker.delete_channel(node.broker.topics[_TOPIC], channel)
        node.turn()
        return {(_TOPIC, channel, body) for body in bodies}

    def seek_to_the_beginning(self, channel: str) -> None:
        """Let a channel of node 1 deliver all messages of its log again."""
        node = self.node(1)
        topic = node.broker.topics[_TOPIC]
        everything = [(topic.log.log_start, topic.log.next_seq)]
        node.broker.seek_channel(topic, topic.channels[channel], topic.log.log_start, everything)
        for promise in self.promises.made.values():
            promise.channels.add(channel)
        self.promises.done.pop((_TOPIC, channel), None)
        node.turn()


# --- stages ---


def _snapshot(it: Staged) -> None:
    """A replica gets messages before it knows their channels, and takes over."""
    it.begin(2, catch_up_rate=1)
    it.site.kill(2)
    # Its file is sent first, and after it no other for a minute.
    it.node(1).channel(_OTHER_TOPIC, CHANNELS[0])
    for channel in CHANNELS:
        it.node(1).channel(_TOPIC, channel)
    it.site.start(2)
    primary = it.node(1).replication.primary
    it.wait_until(lambda: any(one.state is StreamState.STREAMING for one in primary.streams))
    it.publish_some()
    if all(one.copies for one in it.promises.made.values()):
        it.site.lose_disk(1)
        it.wait(_FAILOVER_S)
    it.site.settings = replace(it.site.settings, catch_up_rate=1 << 30)
    for number in list(it.site.nodes):
        it.site.kill(number)


def _two_owners(it: Staged, *channels: str, publish: bool = True) -> None:
    """Nodes 1 and 2 do not reach each other, and both deliver the same messages."""
    it.begin(2, *channels)
    if publish:
        it.publish_some()
    it.part_from(2)
    it.wait(_FAILOVER_S)


def _reach(it: Staged) -> None:
    it.site.cut_off.clear()
    it.wait(_KNOWN_S)


def _generation(it: Staged) -> None:
    """A channel is set back at one owner, and all of it was finished at the other."""
    _two_owners(it, "a")
    it.take(2, "a")
    it.take(1, "a")
    it.seek_to_the_beginning("a")
    _reach(it)


def _deletion(it: Staged) -> None:
    """A channel is deleted at one of two owners."""
    _two_owners(it, *CHANNELS)
    deleted = it.delete_at(1, "b")
    _reach(it)
    it.deleted = deleted


def _first_channel(it: Staged) -> None:
    """Messages wait for a channel, which is made at one of two owners."""
    _two_owners(it)
    it.node(1).channel(_TOPIC, "a")
    it.take(1, "a")
    _reach(it)
    it.is_strict = True


def _starving_channel(it: Staged) -> None:
    """A channel exists at the lower owner only; the higher one has its messages pending on another."""
    _two_owners(it, "a")
    it.node(1).channel(_TOPIC, "b")
    it.seek_to_the_beginning("b")
    _reach(it)
    if it.take(1, "b") < len(it.promises.made):
        it.wrong.append("a channel of one owner gets nothing")


def _lost_tail(it: Staged) -> None:
    """The origin loses its newest messages in a power cut, and its replica has them."""
    it.begin(2, "a")
    it.publish_some()
    it.node(1).sync()
    it.publish_some()
    it.power_cut(1)
    it.site.start(1)
    it.checks_in_flight = True
    it.wait(3)
    it.read(1)
    if it.wait_until(lambda: it.has_taken_over(2), 14):
        it.read(2)
    it.wait(2)


def _raised_epoch(it: Staged) -> None:
    """The origin delivers again while the node that has taken over is away."""
    it.begin(2, "a")
    it.publish_some()
    it.site.kill(1)
    it.wait(_FAILOVER_S)
    it.site.start(1)
    it.wait(_KNOWN_S)
    it.site.kill(2)
    it.wait(_FAILOVER_S)
    it.checks_in_flight = True
    it.read(1)
    it.site.start(2)
    it.wait(3)
    it.read(2)
    it.wait(it.rng.randint(2, 8))


def _returned_origin(it: Staged) -> None:
    """The origin returns to consumers when others have finished its messages."""
    it.begin(2, "a")
    it.publish_some()
    it.site.kill(1)
    it.wait(_FAILOVER_S)
    it.take(2, "a")
    it.wait(_KNOWN_S)
    it.is_strict = True
    it.site.start(1)
    it.read(1)
    it.wait(4)


def _suspended_origin(it: Staged) -> None:
    """The origin runs again, with consumers, when others have finished its messages."""
    it.begin(2, "a")
    it.publish_some()
    it.site.suspended.add(1)
    it.wait(_FAILOVER_S)
    it.take(2, "a")
    it.wait(_KNOWN_S)
    it.is_strict = True
    it.site.resume()
    it.read(1)
    it.wait(4)


def _suspended_new_owner(it: Staged) -> None:
    """A node that has taken over runs again, with consumers, when the origin has delivered all."""
    it.begin(2, "a")
    it.publish_some()
    it.site.kill(1)
    it.wait(_FAILOVER_S)
    it.site.start(1)
    it.wait(_KNOWN_S)
    it.site.suspended.add(2)
    it.wait(_FAILOVER_S)
    it.take(1, "a")
    it.wait(_KNOWN_S)
    it.is_strict = True
    it.site.resume()
    it.read(2)
    it.wait(4)


def _restarted_nodes(it: Staged) -> None:
    """Both nodes restart, the origin last, in less than the failover timeout."""
    it.begin(2, "a")
    it.publish_some()
    for number in (1, 2):
        it.site.kill(number)
    it.site.start(2)
    it.wait(it.rng.randint(8, 28))
    it.site.start(1)
    it.wait(5)
    if it.has_taken_over(2):
        it.wrong.append("a replica took over from an owner that was away for a moment")


def _lost_owner(it: Staged) -> None:
    """A node takes over, yields nothing to the origin that is gone, and delivers."""
    it.begin(2, "a")
    it.publish_some()
    it.site.kill(1)
    it.wait(_FAILOVER_S)
    if it.take(2, "a") < len(it.promises.made):
        it.wrong.append("messages of an owner that is gone are not delivered")


def _replica_without_room(it: Staged) -> None:
    """The new replica has no room, and the origin is lost: the earlier replica has all."""
    it.begin(3, "a")
    it.publish_some()
    other = 5 - it.replica()
    it.use_replicas(other)
    it.faults.fill(it.node(other))
    it.wait(25)
    it.site.lose_disk(1)
    it.wait(1)


def _replica_that_is_not_needed(it: Staged) -> None:
    """A copy was dropped because the origin has all durably: it may lose power."""
    it.begin(3, "a")
    it.publish_some()
    earlier = it.replica()
    other = 5 - earlier
    it.use_replicas(other)
    if it.wait_until(lambda: it.has_no_copy(earlier) and it.replica() == other):
        it.site.lose_disk(other)
        it.power_cut(1)


def _state_of_a_returned_origin(it: Staged) -> None:
    """A copy was dropped because the origin has its channel state: it may lose power."""
    it.begin(2, *CHANNELS)
    it.publish_some()
    it.site.kill(1)
    it.wait(_FAILOVER_S)
    it.take(2, "a")
    deleted = it.delete_at(2, "b")
    it.wait(_KNOWN_S)
    it.site.start(1)
    if it.wait_until(lambda: it.copy_of_node_1(2) is None):
        it.power_cut(1)
        it.is_strict = True
        it.deleted = deleted
        it.site.start(1)
        it.wait(4)
        for channel in it.node(1).broker.topics[_TOPIC].channels:
            it.read(1, channel)


def _transfer(it: Staged) -> None:
    """Consumers have messages while they are transferred, and answer some of them."""
    it.begin(2, "a")
    for _ in range(5):
        it.publish_some()
    it.checks_in_flight = True
    reader = it.read(1, rdy=3)
    it.node(1).replication.decommission("", fewer_copies=True)
    answers = it.rng.random() < 0.5
    it.read(2)
    for _ in range(it.rng.randint(5, 35)):
        it.wait(1)
        reader.take()
        if answers and reader.unanswered:
            it._answer(it.node(1), reader, reader.unanswered[0], "FIN")


def _copied_data_path(it: Staged) -> None:
    """A data path is copied while its node runs."""
    it.begin(2, "a")
    it.publish_some()
    it.site.add(copied(it.site.disks[1]))
    it.wait(5)
    it.take(1, "a")
    it.wait(_KNOWN_S)
    it.is_strict = True
    it.read(3)
    it.wait(2)


def _holder_of_a_copied_data_path(it: Staged) -> None:
    """A node has a copy that its origin has not made, and is away while the messages are finished."""
    it.begin(2, "a")
    it.publish_some()
    it.site.add(copied(it.site.disks[1]))
    it.wait(it.rng.choice((0.5, 1, 1.5)))
    it.site.kill(3)
    it.site.kill(1)
    it.wait(_FAILOVER_S)
    it.take(2, "a")
    it.wait(_KNOWN_S)
    it.site.start(1)
    it.wait_until(lambda: it.copy_of_node_1(2) is None, 30)
    it.site.kill(1)
    it.is_strict = True
    it.site.start(3)
    it.read(3)
    it.wait(4)


def _new_owner(it: Staged) -> None:
    """The origin is lost right after a publish; the new owner is fully replicated: it may lose power."""
    it.begin(3, "a")
    it.publish_some()
    owner = it.replica()
    it.site.lose_disk(1)
    it.wait(_FAILOVER_S)
    if it.wait_until(lambda: it.is_fully_replicated(owner)):
        for number in it.site.nodes.keys() - {owner}:
            it.site.lose_disk(number)
        it.power_cut(owner)


def _strict_replica(it: Staged) -> None:
    """With --sync-every=1 a replica loses nothing in a power cut."""
    it.begin(2, "a", strict=True)
    it.publish_some()
    it.site.lose_disk(1)
    it.power_cut(2)


STAGES: Final[dict[str, Callable[[Staged], None]]] = {
    "snapshot": _snapshot,
    "generation": _generation,
    "deletion": _deletion,
    "first channel": _first_channel,
    "starving channel": _starving_channel,
    "lost tail": _lost_tail,
    "raised epoch": _raised_epoch,
    "returned origin": _returned_origin,
    "suspended origin": _suspended_origin,
    "suspended new owner": _suspended_new_owner,
    "restarted nodes": _restarted_nodes,
    "lost owner": _lost_owner,
    "replica without room": _replica_without_room,
    "replica that is not needed": _replica_that_is_not_needed,
    "state of a returned origin": _state_of_a_returned_origin,
    "consumers during a transfer": _transfer,
    "copied data path": _copied_data_path,
    "holder of a copied data path": _holder_of_a_copied_data_path,
    "new owner": _new_owner,
    "strict replica": _strict_replica,
}


def run(profile: str, seed: int) -> tuple[History, list[str]]:
    """A history of a profile or a stage, and its violations; an exception is one."""
    history = Staged(seed, profile) if profile in STAGES else History(seed, profile)
    try:
        return history, history.run().violations()
    except Exception:  # noqa: BLE001 - every error is reported
        return history, [traceback.format_exc()]
