"""Random histories of several nodes, and what must hold at the end of each."""

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from nsqd.replication.claims import Pending, count, subtract
from nsqd.replication.frames import CopyKind
from nsqd.replication.log_stream import LogStream, ReplicaSettings
from nsqd.storage.topic_log import TopicLog
from tests.campaign.replication.faults import Faults
from tests.campaign.replication.node import MSG_TIMEOUT, SECOND, Killed, Reader, SimulatedNode
from tests.campaign.replication.promises import Promise, Promises, bodies_in
from tests.campaign.replication.site import Site
from tests.support.simulated_disk import SimulatedDisk

TOPICS: Final = ("t", "u")
CHANNELS: Final = ("a", "b")
# After so long other nodes know that a message was finished.
KNOWN_AFTER: Final = 9 * SECOND
# Profiles without a duplicate that a reachable node could have prevented.
STRICT: Final = ("restart", "return", "suspended", "transfer")
_QUIET: Final = dict.fromkeys(
    (
        *("part", "lose", "power", "move", "suspend", "copy", "long", "kill", "kill_at_call", "jump", "slow"),
        *("full", "half_open", "lie", "make_channel", "restart", "decommission", "rotate"),
    ),
    0.0,
)
PROFILES: Final[dict[str, dict[str, float]]] = {
    "all": {},
    "power": {"power": 2, "kill": 0.5, "sync": 3},
    "disks": {"lose": 3, "kill": 0.5, "copy": 0.4, "full": 1, "slow": 1},
    "partition": {"part": 4, "half_open": 2, "kill": 0, "power": 0, "lose": 0, "kill_at_call": 0},
    "copied": {"copy": 3, "kill": 0.5, "lose": 0.3},
    "people": {"make_channel": 3, "delete_channel": 1, "delete_topic": 0.5, "seek": 0.5},
    "network": {"half_open": 3, "lie": 2, "stranger": 2, "version": 1, "rotate": 3, "move": 1},
    "decommission": {"decommission": 1.5, "cut_decommission": 1, "kill": 0.3, "lose": 0.3},
    "shrink": _QUIET | {"decommission": 0.3, "kill": 0.3, "restart": 3},
    "restart": _QUIET | {"kill": 1, "restart": 8},
    "return": _QUIET | {"away": 2},
    "suspended": _QUIET | {"suspend_long": 2},
    "transfer": _QUIET | {"decommission": 1.5},
}


class History:
    """One seed."""

    EVENTS: Final = {
        "publish": 14, "consume": 12, "wait": 10, "subscribe": 3, "leave": 1, "make_channel": 1, "kill": 1,
        "restart": 3, "part": 1, "long": 2, "compact": 1, "sync": 1, "lose": 0.7, "power": 0.7, "move": 0.3,
        "suspend": 0.4, "copy": 0.1, "kill_at_call": 0.7, "jump": 0.3, "slow": 0.3, "full": 0.3,
        "half_open": 0.5, "lie": 0.2, "stranger": 0.2, "version": 0.1, "rotate": 0.3, "decommission": 0,
        "cut_decommission": 0, "delete_channel": 0, "delete_topic": 0, "seek": 0, "away": 0,
        "suspend_long": 0,
    }  # fmt: skip

    def __init__(self, seed: int, profile: str = "all") -> None:
        self.rng = rng = random.Random(f"{profile} {seed}")
        self.wrong: list[str] = []
        # When each message was sent last without an answer yet, and by which node.
        self._in_flight: dict[tuple[str, str, bytes], tuple[int, int]] = {}
        self.profile = profile
        replicas = rng.choice((1, 1, 2))
        settings = ReplicaSettings(
            replicas=replicas, refuse=rng.random() < 0.4, strict=rng.random() < 0.3, catch_up_rate=1 << 30
        )
        self.is_strict = profile in STRICT
        self.checks_in_flight = profile == "transfer"
        self.promises = Promises()
        self.use(Site(rng.randint(replicas + 1, 4), rng, settings, is_prompt=self.is_strict))
        self.weights = dict(self.EVENTS) | PROFILES.get(profile, {})
        self.trace: list[str] = []
        self.count = 0
        self._readers: list[tuple[SimulatedNode, Reader]] = []

    def use(self, site: Site) -> None:
        """Play on this site."""
        self.site, self.events = site, site.events
        site.on_sent = self._sent
        self.faults = Faults(site, self.promises, self.wrong)

    def run(self, steps: int = 80) -> "History":
        for node in self.site.nodes.values():
            for name in TOPICS:
                if self.is_strict or self.rng.random() < 0.7:
                    node.channel(name, self.rng.choice(CHANNELS))
        self.site.advance(6)
        self.site.settle()
        for event in self.rng.choices(list(self.weights), list(self.weights.values()), k=steps):
            self.trace.append(event)
            self.events[event] += 1
            self._do(getattr(self, event, None) or getattr(self.faults, event))
            if self.profile == "restart":
                for number in sorted(self.site.disks.keys() - self.site.nodes.keys()):
                    if self.rng.random() < 0.5:
                        self.site.start(number)
        return self

    def _do(self, action: Callable[[], None]) -> None:
        """Do something; nodes that were to be killed at a call of their disks may end during that."""
        killed: list[int] = []
        try:
            action()
        except Killed as error:
            killed.append(error.number)
        while killed:
            try:
                self.site.kill(killed[-1])
            except Killed as error:
                killed.append(error.number)
            else:
                self.events["killed at a call"] += 1
                killed.pop()

    # --- events: clients ---

    def _node(self) -> SimulatedNode | None:
        return self.site.any_node()

    def publish(self) -> None:
        node, name = self._node(), self.rng.choice(TOPICS)
        if node is not None:
            self.publish_at(node, name, self.rng.choice((1, 1, 5, 20)))

    def publish_at(self, node: SimulatedNode, name: str, count: int) -> None:
        """Publish so many messages, unless one is refused."""
        for _ in range(count):
            self.count += 1
            body = b"<%d>" % self.count
            pending = node.publish(name, body)
            if isinstance(pending, str):
                self.events["refused"] += 1
                break
            channels = set(node.broker.topics[name].channels)
            promise = Promise(name, node.identity, channels, is_backlog=not channels)
            store = node.store(node.broker.topics[name])
            streams = [one for one in node.replication.primary.streams if one.in_sync(store)]
            self.promises.unanswered[body] = promise
            settle = partial(self._answered, node, store, body, promise, streams)
            if pending is None:
                settle("")
            else:
                pending.add(settle)
        node.turn()
        self.site.move()

    def _answered(
        self,
        node: SimulatedNode,
        store: TopicLog,
        body: bytes,
        promise: Promise,
        streams: list[LogStream],
        reason: str,
    ) -> None:
        """The publisher got its answer: the promise holds for the replicas that were in sync all the time."""
        is_wanted = self.promises.unanswered.pop(body, None) is promise
        if reason or not is_wanted or self.site.nodes.get(node.number) is not node:
            return
        in_sync = sum(one.in_sync(store) for one in streams)
        promise.copies = min(in_sync, self.site.settings.replicas)
        if promise.copies:
            others = [disk for number, disk in self.site.disks.items() if number != node.number]
            have = sum(body in bodies_in(disk) for disk in others)
            # The owner does not know yet that the end of a half-open connection is gone.
            knows = not any(one.is_half_open for one in self.site.lines if one.connector == node.number)
            if have < promise.copies and knows:
                self.wrong.append(f"{body.decode()} was answered with {have} of {promise.copies} copies")
        self.promises.made[body] = promise

    def subscribe(self) -> None:
        node = self._node()
        if node is None or node.broker.decommissioning:
            return
        name = self.rng.choice(TOPICS)
        topic = node.broker.topics.get(name)
        if topic is not None and topic.channels:
            channel = self.rng.choice(sorted(topic.channels))
            self._readers.append((node, node.read(name, channel, self.rng.choice((1, 3, 20)))))

    def make_channel(self) -> None:
        node = self._node()
        if node is not None and not node.broker.decommissioning and not node.broker.awaits_channel_state:
            node.channel(self.rng.choice(TOPICS), self.rng.choice(CHANNELS))

    def consume(self) -> None:
        for node, reader in list(self._readers):
            if self.site.nodes.get(node.number) is not node or reader not in node.readers:
                self._readers.remove((node, reader))
                continue
            if node.number in self.site.suspended:
                continue
            reader.take()
            count = self.rng.randint(0, min(6, len(reader.unanswered)))
            for message in self.rng.sample(reader.unanswered, count):
                self._answer(node, reader, message, "FIN" if self.rng.random() < 0.85 else "REQ")
            reader.take()

    def _answer(self, node: SimulatedNode, reader: Reader, message: tuple[bytes, bytes], verb: str) -> None:
        self._in_flight.pop((reader.topic, reader.channel, message[1]), None)
        if node.answer(reader, message, verb) and verb == "FIN":
            self.promises.by_another += int(message[0], 16) >> 54 != node.number
            self.promises.finished(reader.topic, reader.channel, message[1], self.site.now, node.number)

    def _sent(self, number: int, topic: str, channel: str, body: bytes) -> None:
        """A message was sent to a consumer: a duplicate that could have been prevented is a violation."""
        if self.checks_in_flight:
            self._check_in_flight(number, (topic, channel, body))
        found = self.promises.finished_at.get((topic, channel, body))
        if found is None or not self.is_strict:
            return
        finished, by = found
        site = self.site
        if site.now - finished < KNOWN_AFTER or by not in site.nodes or by in site.suspended:
            return
        awake = max(site.started[by], site.resumed.get(by, 0))
        # Its process has lived long enough after the answer for a checkpoint.
        end = next((one for one in site.ended.get(by, ()) if one >= finished), site.now)
        is_stored = end - finished >= KNOWN_AFTER
        if is_stored and site.now - awake >= KNOWN_AFTER:
            self.events["preventable duplicate"] += 1
            self.wrong.append(
                f"{body.decode()} of {topic}/{channel} was finished on node {by} at {finished / SECOND}"
                f" and sent by node {number} at {site.now / SECOND}"
            )

    def _check_in_flight(self, number: int, key: tuple[str, str, bytes]) -> None:
        """A consumer of another node, which runs all the time, has the message and may still answer."""
        site = self.site
        since, other = self._in_flight.get(key, (0, number))
        self._in_flight[key] = (site.now, number)
        awake = max(site.started.get(other, 0), site.resumed.get(other, 0))
        runs = other in site.nodes and other not in site.suspended and awake < since
        if other != number and runs and site.now - since < MSG_TIMEOUT - SECOND:
            self.wrong.append(
                f"{key[2].decode()} was sent by node {number} while it was in flight on node {other}"
            )

    def leave(self) -> None:
        if self._readers:
            node, reader = self._readers.pop(self.rng.randrange(len(self._readers)))
            reader.take()
            for _, body in reader.unanswered:
                self._in_flight.pop((reader.topic, reader.channel, body), None)
            if self.site.nodes.get(node.number) is node and reader in node.readers:
                node.leave(reader)

    # --- events: operators ---

    def _origins(self, node: SimulatedNode, topic: str) -> set[bytes]:
        """The origins of the logs that this node delivers of a topic, or may have delivered."""
        found = {node.identity}
        own = node.broker.topics.get(topic)
        for one in () if own is None else own.promoted:
            found.add(bytes.fromhex(one.origin))  # type: ignore[attr-defined]
        return found

    def delete_channel(self) -> None:
        node = self._node()
        name = self.rng.choice(TOPICS)
        topic = None if node is None else node.broker.topics.get(name)
        if node is None or topic is None or not topic.channels:
            return
        channel = self.rng.choice(sorted(topic.channels))
        node.forget_readers(name, channel)
        self.promises.waive(name, self._origins(node, name), channel)
        node.broker.delete_channel(topic, channel)
        node.turn()

    def delete_topic(self) -> None:
        node = self._node()
        name = self.rng.choice(TOPICS)
        if node is not None and name in node.broker.topics:
            self.promises.waive(name, self._origins(node, name), None)
            node.delete_topic(name)

    def seek(self) -> None:
        node = self._node()
        name = self.rng.choice(TOPICS)
        topic = None if node is None else node.broker.topics.get(name)
        if node is None or topic is None or not topic.channels or topic.paused:
            return
        channel = topic.channels[self.rng.choice(sorted(topic.channels))]
        self.promises.waive(name, self._origins(node, name), channel.name)
        node.broker.seek_channel(topic, channel, topic.log.next_seq, [])
        for copy in topic.promoted:
            if channel.name in copy.channels:
                copy.channels[channel.name].commit(copy.log.next_seq)
        node.turn()

    def decommission(self) -> None:
        node = self._node()
        if node is None:
            return
        if node.replication.state.is_decommissioning and self.rng.random() < 0.2:
            node.replication.cancel_decommission()
        elif len(self.site.nodes) > 1:
            node.replication.decommission("", fewer_copies=False)
            for reader in list(node.readers):
                if self.rng.random() < 0.3:
                    reader.take()
                    for _, body in reader.unanswered:
                        self._in_flight.pop((reader.topic, reader.channel, body), None)
                    node.leave(reader)

    def _remove_decommissioned(self) -> None:
        for number, node in list(self.site.nodes.items()):
            if node.replication.decommission_state()["done"]:
                self.events["decommissioned"] += 1
                only = self._only_on(number)
                if only:
                    self.wrong.append(f"node {number} is decommissioned, and only it has {only[:3]}")
                self.site.lose_disk(number)
                del self.site.disks[number]

    # --- events: machines ---

    def wait(self) -> None:
        self.site.advance(self.rng.choice((0.5, 1, 3)))
        self._remove_decommissioned()

    def long(self) -> None:
        self.site.step = SECOND
        self.site.advance(self.rng.choice((20, 45)))
        self.site.step = SECOND // 2
        self._remove_decommissioned()

    def compact(self) -> None:
        node = self._node()
        if node is not None:
            node.compact(self.rng.choice(TOPICS))

    def sync(self) -> None:
        node = self._node()
        if node is not None:
            node.sync()

    def kill(self) -> None:
        node = self._node()
        if node is not None:
            self.site.kill(node.number)

    def power(self) -> None:
        node = self._node()
        if node is None:
            return
        left = self.site.disks[node.number].after_power_cut(self.rng)
        if not self._only_on(node.number, left):
            self.events["power cut"] += 1
            self.site.end(node.number, left)

    def lose(self) -> None:
        number = self.rng.choice(sorted(self.site.disks))
        if not self._only_on(number):
            self.events["lost disk"] += 1
            self.site.lose_disk(number)

    def _only_on(self, number: int, left: SimulatedDisk | None = None) -> list[bytes]:
        """Return open messages that no disk has but this one: losing it is one fault too many."""
        open_messages = self.promises.open()
        disks = [disk for one, disk in self.site.disks.items() if one != number]
        there = b"\n".join(bodies_in(disk) for disk in (*disks, *([left] if left is not None else [])))
        return [
            body
            for body in open_messages
            if body not in there or (not self.promises.made[body].copies and self._is_unsafe(number, body))
        ]

    def _is_unsafe(self, number: int, body: bytes) -> bool:
        """Whether a message was answered without a replica, and its origin is not fully replicated since.

        A replica may have it and not know its channels.
        """
        node = self.site.nodes.get(number)
        origin = self.promises.made[body].origin
        if node is None:
            return self.site.identities.get(number) == origin
        own = node.replication.state.own_copy
        log = node.replication.logs[node.identity]
        # Of a transferred log another owner has everything, and is fully replicated.
        is_safe = log.node.is_transferred or log.counted(own, 0, node.now) is not None
        return node.identity == origin and not is_safe

    def restart(self) -> None:
        down = sorted(self.site.disks.keys() - self.site.nodes.keys())
        if down:
            self.site.start(self.rng.choice(down))

    def move(self) -> None:
        """A node comes back under another address."""
        node = self._node()
        if node is not None:
            self.site.moves[node.number] += 1
            self.site.kill(node.number)
            self.site.start(node.number)

    def suspend(self) -> None:
        if self.site.suspended and self.rng.random() < 0.6:
            self.site.resume()
            return
        node = self._node()
        if node is not None:
            self.site.suspended.add(node.number)

    def part(self) -> None:
        if self.site.cut_off or self.site.deaf or self.rng.random() < 0.3:
            self.site.cut_off.clear()
            self.site.deaf.clear()
        elif self.rng.random() < 0.7:
            self.site.cut_off = {self.rng.choice(sorted(self.site.disks))}
            for line in list(self.site.lines):
                if not self.site.reach(line.connector, line.acceptor) and self.rng.random() < 0.5:
                    self.site.cut(line)
        elif self.site.lines:
            line = self.rng.choice(self.site.lines)
            pairs = ((line.connector, line.acceptor), (line.acceptor, line.connector))
            self.site.deaf = {self.rng.choice(pairs)}

    def away(self) -> None:
        """A node is down for longer than the failover timeout."""
        node = self._node()
        if node is not None and len(self.site.nodes) == len(self.site.disks):
            self.site.advance(self.rng.choice((0, 0, 12)))
            self.site.kill(node.number)
            for _ in range(self.rng.randint(4, 12)):
                self.site.advance(6)
                self.consume()
            self.site.start(node.number)

    def suspend_long(self) -> None:
        """A node is suspended, often for longer than the failover timeout."""
        node = self._node()
        if node is not None:
            self.site.suspended.add(node.number)
            for _ in range(self.rng.randint(1, 10)):
                self.site.advance(6)
                self.consume()
            self.site.resume()

    # --- the end ---

    def heal(self) -> None:
        """Start all nodes, connect them, and let consumers of every channel take everything."""
        site = self.site
        self.faults.end()
        site.resume()
        for node in site.nodes.values():
            if node.replication.state.is_decommissioning:
                node.replication.cancel_decommission()
        for number in sorted(site.disks.keys() - site.nodes.keys()):
            site.start(number)
        for node, reader in self._readers:
            if site.nodes.get(node.number) is node and reader in node.readers:
                for message in list(reader.unanswered):
                    node.answer(reader, message, "REQ")
                node.leave(reader)
        self._readers = []
        if self.rng.random() < 0.3:
            self._wait_until_quiet()
        self._finish_all()

    def _wait_until_quiet(self) -> None:
        """Without consumers each message gets one owner, and then nodes have nothing to say."""
        site = self.site
        site.step = SECOND
        site.is_prompt, was_prompt = True, site.is_prompt
        for _ in range(5):
            self._do(partial(site.advance, 30))
        self.events["quiet"] += 1
        before = self._serials()
        site.advance(20)
        self.wrong += [
            f"{name} sends statuses all the time"
            for name, serial in self._serials().items()
            if serial > before.get(name, serial) + 4
        ]
        self._check_owners()
        site.is_prompt = was_prompt

    def _serials(self) -> dict[str, int]:
        return {
            f"node {node.number} to {peer.hex()[:4]} of {log.origin.hex()[:4]}": exchange._serial
            for node in self.site.nodes.values()
            for log in node.replication.logs.values()
            for peer, exchange in log.exchanges.items()
        }

    def _check_owners(self) -> None:
        found: dict[bytes, list[tuple[bytes, str, Pending, set[bytes]]]] = {}
        for node in self.site.nodes.values():
            for log in node.replication.logs.values():
                for copy in log.copies:
                    if copy.is_owner:
                        name = f"copy {copy.number} of node {node.number}"
                        holders = {node.identity, *copy.holders}
                        owner = (node.identity, name, log.delivered(copy), holders)
                        found.setdefault(log.origin, []).append(owner)
        for origin, owners in found.items():
            for at, (one, name, pending, holders) in enumerate(owners):
                for node_of_other, other, theirs, others in owners[at + 1 :]:
                    # The copy of a data path and a later replica of its original may not know each other.
                    is_known = node_of_other in holders or one in others
                    twice = count(pending) - count(subtract(pending, [theirs]))
                    if twice and is_known:
                        self.wrong.append(
                            f"{twice} messages of {origin.hex()[:4]} have two owners: {name}, {other}"
                        )

    def _finish_all(self) -> None:
        """Take everything until nothing is open and no copy is left over."""
        site = self.site
        site.step = SECOND
        for turn in range(25):
            if turn in (6, 11, 16, 21):
                # Nodes that were not heard for a week are forgotten. A node may have learned of one since.
                site.days += 8
            self._do(partial(site.advance, 8))
            self._do(site.settle)
            self._take_all()
            if not self.promises.open() and not self._left_over():
                break

    def _take_all(self) -> None:
        for node in self.site.nodes.values():
            for name, topic in list(node.broker.topics.items()):
                # A topic without channels gets one, as a new topic would from nsqlookupd.
                for channel in list(topic.channels) or CHANNELS[:1]:
                    reader = node.read(name, channel, 1000)
                    for _ in range(20):
                        new = reader.take()
                        if not new:
                            break
                        for message in new:
                            self._answer(node, reader, message, "FIN")
                    node.leave(reader)

    def _left_over(self) -> list[str]:
        """Return copies that are not streamed, and topics without their replicas."""
        found = []
        for node in self.site.nodes.values():
            for log in node.replication.logs.values():
                for copy in log.copies:
                    if copy.kind not in (CopyKind.ORIGIN, CopyKind.STREAMED):
                        text = f"node {node.number} has copy {copy.number} of {copy.origin.hex()[:4]}"
                        found.append(
                            f"{text}: kind {copy.kind}, waits for {copy.waits_for!r} {copy.problems}"
                        )
            if node.replication.copies.problems:
                found.append(f"node {node.number}: {node.replication.copies.problems}")
        if len(self.site.nodes) > self.site.settings.replicas:
            found += [
                f"node {node.number} is under-replicated"
                for node in self.site.nodes.values()
                if node.replication.primary.under_replicated()
            ]
        return found

    def _lost(self) -> list[str]:
        found = []
        for body in self.promises.open():
            one = self.promises.made[body]
            if one.channels or any(name == one.topic for name, _ in self.promises.done):
                missing = [
                    name
                    for name in sorted(one.channels)
                    if body not in self.promises.done.get((one.topic, name), ())
                ]
                found.append(
                    f"{body.decode()} of {one.topic} was never delivered to {missing or 'a channel'}"
                )
        return found

    def violations(self) -> list[str]:
        """Heal the site and return everything that is wrong at the end."""
        self.heal()
        if self.profile == "shrink":
            self._shrink()
        found = self._lost() + self._left_over() + self.wrong
        if not found and self.profile != "people" and self.rng.random() < 0.3:
            self.events["restart of all"] += 1
            again = self._restart_all()
            if again:
                found.append(f"{again} finished messages were delivered again after a restart of all")
        found += [f"node {node.number}: {text}" for node in self.site.nodes.values() for text in node.errors]
        return found

    def _shrink(self) -> None:
        """Publish, and decommission all nodes but one, which has everything in the end."""
        for _ in range(4):
            self.publish()
        self.site.advance(5)
        self.site.settle()
        while len(self.site.nodes) > 1:
            node = self.rng.choice(list(self.site.nodes.values()))
            node.replication.decommission(
                "", fewer_copies=len(self.site.nodes) <= self.site.settings.replicas + 1
            )
            for turn in range(25):
                if turn == 15:
                    # Nodes that left before are forgotten.
                    self.site.days += 8
                self.site.advance(4)
                self.site.settle()
                if node.replication.decommission_state()["done"]:
                    break
            state = node.replication.decommission_state()
            if not state["done"]:
                self.wrong.append(f"the decommission of node {node.number} does not end: {state}")
                return
            self.events["decommissioned"] += 1
            self.site.advance(3)
            self.site.settle()
            self.site.lose_disk(node.number)
            del self.site.disks[node.number]
        self._finish_all()

    def _restart_all(self) -> int:
        """Kill and restart all nodes; return how many finished messages are delivered again."""
        before = self.promises.again
        self.site.advance(12)
        self.site.settle()
        for node in self.site.nodes.values():
            node.checkpoint()
        for number in sorted(self.site.nodes):
            self.site.kill(number)
        for number in sorted(self.site.disks):
            self.site.start(number)
        self.site.advance(10)
        self.site.settle()
        self._take_all()
        return self.promises.again - before
