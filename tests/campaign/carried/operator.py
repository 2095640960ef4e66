"""What operators do to the nodes of a site, whether or not the nodes reach each other."""

import errno
import random
from typing import Final

from nsqd.storage.data_path import claim
from tests.campaign.carried.node import DATA, CarryingNode
from tests.campaign.carried.promises import Promises
from tests.campaign.carried.site import CarryingSite

EVENTS: Final = (
    "delete_channel",
    "delete_topic",
    "empty_channel",
    "empty_topic",
    "seek",
    "pause_channel",
    "pause_topic",
    "drain",
    "fill_disk",
    "slow_down",
    "copy_disk",
    "clone",
    "hand_over",
)
MOST_NODES: Final = 5


class Operator:
    """An operator. Each event is applied to a node, and does nothing if it does not apply there."""

    def __init__(self, site: CarryingSite, rng: random.Random, promises: Promises) -> None:
        self.site, self.rng, self.promises = site, rng, promises
        # Copies of homes that came with a copied data path. Their homes do not know of them, so they stay.
        self.cloned: set[tuple[int, bytes, int]] = set()
        # Identity of a data path -> its earlier identities, if it is a copy.
        self.before: dict[bytes, set[bytes]] = {}
        # The same for copied data paths that have not started yet, by node.
        self._copied: dict[int, set[bytes]] = {}
        site.on_started = self._started

    def do(self, event: str, topics: tuple[str, ...]) -> None:
        nodes = list(self.site.nodes.values())
        if nodes:
            getattr(self, event)(self.rng.choice(nodes), self.rng.choice(topics))

    def _homes(self, node: CarryingNode, name: str) -> set[bytes]:
        """Return the identities of the homes whose messages of a topic are given out at this node."""
        topic = node.broker.topics.get(name)
        carried = [] if topic is None else topic.carried
        homes = self.names_of(node.identity)
        for one in carried:
            homes |= self.names_of(bytes.fromhex(one.home))
        return homes

    def names_of(self, identity: bytes) -> set[bytes]:
        """Return all identities that a data path has had; a copied one has had others."""
        return self.before.get(identity, set()) | {identity}

    def _started(self, number: int) -> None:
        names = self._copied.pop(number, None)
        if names is not None:
            self.before[self.site.identities[number]] = names

    def _channel(self, node: CarryingNode, name: str) -> str | None:
        topic = node.broker.topics.get(name)
        return self.rng.choice(sorted(topic.channels)) if topic is not None and topic.channels else None

    def _done(self, node: CarryingNode, name: str) -> None:
        """Write the request to disk, also for carried logs, because it is answered only then."""
        node.turn()
        topic = node.broker.topics.get(name)
        if topic is not None:
            node.note_carried(topic)

    # --- channels and topics ---

    def delete_channel(self, node: CarryingNode, name: str) -> None:
        channel = self._channel(node, name)
        if channel is not None:
            self.promises.waive(name, self._homes(node, name), channel)
            node.forget_readers(name, channel)
            node.broker.delete_channel(node.broker.topics[name], channel)
            self._done(node, name)

    def delete_topic(self, node: CarryingNode, name: str) -> None:
        topic = node.broker.topics.get(name)
        if topic is not None:
            self.promises.waive(name, self._homes(node, name), None)
            node.forget_readers(name, None)
            node.data.delete(topic)
            node.broker.delete_topic(name)
            node.turn()
            node.note_carried(topic)

    def empty_channel(self, node: CarryingNode, name: str) -> None:
        channel = self._channel(node, name)
        if channel is not None:
            topic = node.broker.topics[name]
            self.promises.waive(name, self._homes(node, name), channel)
            node.broker.empty_channel(topic, topic.channels[channel])
            self._done(node, name)

    def empty_topic(self, node: CarryingNode, name: str) -> None:
        topic = node.broker.topics.get(name)
        if topic is not None:
            if any(one.paused for one in (topic, *topic.carried)):
                # Messages published since the pause wait at the topic.
                self.promises.waive(name, self._homes(node, name), None)
            self.promises.waive_unclaimed(name, self._homes(node, name))
            node.broker.empty_topic(topic)
            self._done(node, name)

    def seek(self, node: CarryingNode, name: str) -> None:
        channel = self._channel(node, name)
        if channel is None:
            return
        topic = node.broker.topics[name]
        first, end = topic.log.kept_from, topic.log.next_seq
        position = self.rng.choice((first, end, (first + end) // 2))
        if position > first:
            self.promises.waive(name, self.names_of(node.identity), channel)
        node.broker.seek_channel(topic, topic.channels[channel], position, claim(topic))
        self._done(node, name)

    def pause_channel(self, node: CarryingNode, name: str) -> None:
        channel = self._channel(node, name)
        if channel is not None:
            topic = node.broker.topics[name]
            found = topic.channels[channel]
            node.broker.pause_channel(topic, found, paused=not found.paused)
            self._done(node, name)

    def pause_topic(self, node: CarryingNode, name: str) -> None:
        topic = node.broker.topics.get(name)
        if topic is not None:
            node.broker.pause_topic(topic, paused=not topic.paused)
            self._done(node, name)

    # --- nodes ---

    def drain(self, node: CarryingNode, _name: str) -> None:
        """Drain the node, so that it takes nothing until its next start."""
        node.broker.draining = True

    def fill_disk(self, node: CarryingNode, _name: str) -> None:
        if self.rng.random() < 0.5:
            node.disk.heal()
        else:
            for call in ("append", "open_write", "create"):
                node.disk.fail(errno.ENOSPC, call, "*/carried/*", times=None)

    def slow_down(self, node: CarryingNode, _name: str) -> None:
        self.site.slow ^= {node.number}

    def copy_disk(self, node: CarryingNode, _name: str) -> None:
        """Copy the data path to another disk, and continue the node there."""
        self._copied[node.number] = self.names_of(node.identity)
        self.site.end(node.number, copy_of(node))
        self.site.start(node.number)

    def clone(self, node: CarryingNode, _name: str) -> None:
        """Start another node on a copy of the data path, while this one continues."""
        if len(self.site.disks) < MOST_NODES:
            number = max(self.site.disks) + 1
            self.site.disks[number] = copy_of(node)
            self._copied[number] = self.names_of(node.identity)
            copies = node.keeping.copies
            self.cloned |= {
                (number, identity, appointment)
                for identity in copies.identities()
                for appointment in copies.appointments(identity)
            }
            self.site.start(number)

    def hand_over(self, node: CarryingNode, _name: str) -> None:
        """Let a node leave permanently; a process may be killed in the middle of that."""
        rng, site = self.rng, self.site
        if node.leaving is not None and rng.random() < 0.5:
            node.leaving.cancel()
            return
        others = [one for one in site.nodes.values() if one is not node and not one.broker.draining]
        if not others:
            return
        taker = rng.choice(others)
        site.leave(node.number, taker.address if rng.random() < 0.7 else "")
        for number in rng.choice(((), (), (node.number,), (taker.number,), (node.number, taker.number))):
            site.arm(number, rng.randint(1, 60))
        site.advance(rng.choice((1, 3, 6)))

    # --- the end ---

    def mend(self) -> None:
        """Undo all pauses, full disks, slowness and draining."""
        self.site.slow.clear()
        self.site.armed.clear()
        for node in self.site.nodes.values():
            node.disk.heal()
            if node.leaving is None or node.leaving.state in ("failed", "nobody", "idle"):
                node.broker.draining = node.leaving is not None and not node.leaving.cancel()
            for topic in list(node.broker.topics.values()):
                if not node.broker.leaving:
                    self._unpause(node, topic.name)

    def _unpause(self, node: CarryingNode, name: str) -> None:
        topic = node.broker.topics[name]
        if any(one.paused for one in (topic, *topic.carried)):
            node.broker.pause_topic(topic, paused=False)
        for channel in list(topic.channels.values()):
            if any(one.paused for one in (channel, *channel.siblings)):
                node.broker.pause_channel(topic, channel, paused=False)
        self._done(node, name)


def copy_of(node: CarryingNode):  # type: ignore[no-untyped-def]
    """Return a disk with the data path copied as ``cp -r`` does."""
    disk = node.disk.killed()
    number = len(disk.names(DATA.parent))
    old = DATA.with_name(f"old{number}")
    disk.rename(DATA, old)
    disk.copied(old, DATA)
    return disk.killed()
