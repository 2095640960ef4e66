"""Operations on a real nsqd and on the model, and the comparison of both after each operation."""

import json
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

from tests.model.model import FAR_S, Channel, Message, Model, Policy, Topic
from tests.support import wire
from tests.support.processes import Daemon
from tests.support.waiting import wait_until
from tests.support.wire import MESSAGE, Wire

# A step of a history: the name of an operation and its arguments.
Step = tuple[Any, ...]

TOPIC: Final = "t"
STATES: Final = ("waiting", "deferred", "in_flight", "finished", "dead_lettering")
# Time limit until the node shows the result of an operation. Dead letters are tried again each second.
_SETTLED_S: Final = 6.0
# Messages with a short delay fall due after this time. No operation begins so short before one falls due, and
# none that waits itself.
SOON_S: Final = 2.0
_CLEAR_S: Final = 1.0
_LONG_CLEAR_S: Final = 4.0
_START_S: Final = 4.0
LATER_S: Final = 8.0
# Two rounds of checkpoints: what happened before is in one.
_CHECKPOINT_S: Final = 2.3
_TIMEOUT_MS: Final = 1000
_DELAYS: Final = {"": 0.0, "soon": SOON_S, "later": LATER_S, "far": FAR_S}


class Mismatch(AssertionError):
    """The state of the node differs from the model."""


class Played:
    """One nsqd and the model of it."""

    def __init__(self, nsqd: Daemon) -> None:
        self.nsqd = nsqd
        self.model = Model()
        self.published = 0
        self.steps: list[Step] = []
        self._consumers: dict[tuple[str, str], Wire] = {}
        self.model.topic(TOPIC)
        self._ok("/topic/create", {"topic": TOPIC})

    def play(self, history: list[Step]) -> None:
        """Apply all steps. Raises Mismatch with the steps so far."""
        for step in history:
            self.apply(step)

    def apply(self, step: Step) -> None:
        """Apply one step to both and compare. Raises Mismatch."""
        self.steps.append(step)
        self._pass_due(_LONG_CLEAR_S if step[0] == "time_out" else _CLEAR_S)
        operation: Callable[..., None] = getattr(self, f"do_{step[0]}")
        try:
            operation(*step[1:])
            self.compare()
        except Mismatch as error:
            raise Mismatch(f"after {self.steps!r}:\n{error}") from None

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    # --- what both have ---

    @property
    def topic(self) -> Topic:
        return self.model.topic(TOPIC)

    def channel(self, name: str, topic: str = TOPIC) -> Channel:
        return self.model.topics[topic].channels[name]

    def letters(self, channel: str) -> Topic:
        return self.model.topic(f"{TOPIC}.{channel}.dead")

    # --- publishing ---

    def do_pub(self, count: int = 1, delay: str = "", dedup_id: str = "", how: str = "tcp") -> None:
        """Publish *count* messages together; *delay* is empty or one of `_DELAYS`."""
        seconds = _DELAYS[delay]
        messages: list[Message] = []
        for _ in range(count):
            self.published += 1
            headers = {"dedup-id": dedup_id} if dedup_id else {}
            messages.append(Message(f"m{self.published}", headers))
        query = {"topic": TOPIC} | ({"defer": str(int(seconds * 1000))} if delay else {})
        if dedup_id:
            extension = json.dumps({"dedup-id": dedup_id})
            status = self._post("/pub_ext", query | {"ext": extension}, body=messages[0].body)[0]
        elif how == "http" or count > 1:
            body = "\n".join(one.body for one in messages)
            status = self._post("/mpub" if count > 1 else "/pub", query, body=body)[0]
        else:
            with Wire(("127.0.0.1", self.nsqd.tcp_port)) as publisher:
                body = messages[0].body.encode()
                command = wire.dpub(TOPIC, int(seconds * 1000), body) if delay else wire.pub(TOPIC, body)
                status = 200 if publisher.ask_frame(command).data == b"OK" else 429
        if seconds:
            for message in messages:
                message.due = time.time() + seconds
        stored = self.model.publish(self.topic, messages)
        _same("publish answered", status, 200 if stored else 429)

    # --- topics and channels ---

    def do_create(self, channel: str, start: int | str | None = None, topic: str = TOPIC) -> None:
        """Create a channel; *start* is an index, or ``latest``."""
        found = self.model.topic(topic)
        index = self._index(found, start) if start is not None else None
        place = {} if start is None else {"start": self._place(found, start)}
        self._ok("/channel/create", {"topic": topic, "channel": channel} | place)
        self.model.create_channel(found, channel, index)

    def do_delete(self, channel: str) -> None:
        del self.topic.channels[channel]
        self._ok("/channel/delete", {"topic": TOPIC, "channel": channel})
        # Not before: messages in flight would come back to the channel.
        self._forget_consumer(TOPIC, channel)

    def do_seek(self, channel: str, to: int | str) -> None:
        place = self._place(self.topic, to)
        self._ok("/channel/seek", {"topic": TOPIC, "channel": channel, "to": place})
        self.model.seek(self.topic, self.channel(channel), self._index(self.topic, to))

    def do_commit(self, channel: str, to: int | str) -> None:
        index = self._index(self.topic, to)
        sequence = self.nsqd.get(f"/log/bounds?topic={TOPIC}")["end"]
        if index < len(self.topic.messages):
            sequence = self._sequence(self.topic.messages[index])
        self._ok("/channel/commit", {"topic": TOPIC, "channel": channel, "sequence": str(sequence)})
        self.model.commit(self.topic, self.channel(channel), index)

    def do_pause(self, channel: str = "") -> None:
        self._pause(channel, paused=True)

    def do_unpause(self, channel: str = "") -> None:
        self._pause(channel, paused=False)
        self.model.settle()

    def _pause(self, channel: str, *, paused: bool) -> None:
        (self.channel(channel) if channel else self.topic).paused = paused
        kind = "channel" if channel else "topic"
        query = {"topic": TOPIC} | ({"channel": channel} if channel else {})
        self._ok(f"/{kind}/{'' if paused else 'un'}pause", query)

    def do_empty(self, channel: str = "") -> None:
        if channel:
            self.model.empty(self.channel(channel))
            self._ok("/channel/empty", {"topic": TOPIC, "channel": channel})
        else:
            self.topic.held.clear()
            self.topic.held_deferred.clear()
            self._ok("/topic/empty", {"topic": TOPIC})

    def do_policy(
        self, channel: str, settings: dict[str, Any], apply: bool = False, topic: str = TOPIC
    ) -> None:
        """Set the policy of a topic, or of one channel."""
        policy = Policy(**settings)
        refused = not apply and self._would_drop(topic, channel, policy)
        body = {"topic": f"^{topic}$", "definition": policy.definition()}
        if channel:
            body |= {"channel": f"^{channel}$", "priority": 1}
        query = {"name": f"{topic}-{channel or 'all'}"} | ({"apply": "true"} if apply else {})
        status, answer = self._request("PUT", "/policies", query, json.dumps(body))
        _same("PUT /policies", (status, answer if status == 400 else b""), (409 if refused else 200, b""))
        if refused:
            return
        if channel:
            self.model.of_channel[topic, channel] = policy
        else:
            self.model.of_topic[topic] = policy
        self.model.settle()

    def _would_drop(self, topic_name: str, channel_name: str, new: Policy) -> bool:
        topic = self.model.topics.get(topic_name)
        if topic is None or not new.drop_oldest:
            return False

        def drops(old: Policy, count: int) -> bool:
            narrower = not old.drop_oldest or new.max_depth < old.max_depth
            return narrower and count > new.max_depth

        affected = [topic.channels[channel_name]] if channel_name in topic.channels else []
        if not channel_name:
            if drops(self.model.policy(topic_name), len(topic.held) + len(topic.held_deferred)):
                return True
            own = self.model.of_channel
            affected = [one for one in topic.channels.values() if (topic_name, one.name) not in own]
        return any(
            drops(self.model.policy(topic_name, one.name), len(one.pending()) + topic.held_count(one))
            for one in affected
        )

    # --- consumers ---

    def do_take(self, channel: str, count: int = 1, topic: str = TOPIC) -> None:
        """A consumer receives up to so many messages and keeps them."""
        consumer = self._consumer(topic, channel)
        found = self.channel(channel, topic)
        expected = self.model.take(self.model.topics[topic], found, count)
        if expected:
            consumer.send(wire.rdy(len(found.in_flight)))
        self._receive(consumer, found, expected)

    def _receive(self, consumer: Wire, found: Channel, expected: list[Message]) -> None:
        received: list[tuple[str, int]] = []
        while len(received) < len(expected) and consumer.has_more(_SETTLED_S):
            kind, data = consumer.frame()
            if kind == MESSAGE:
                message = wire.MessageRecord.decode(data)
                received.append((message.body.decode(), message.attempts))
            elif data == b"_heartbeat_":
                consumer.send(b"NOP\n")
        consumer.send(wire.rdy(0))
        expected_pairs = [(one.body, found.attempts[one]) for one in expected]
        _same(f"deliveries of {found.name} with attempts", received, expected_pairs)

    def do_finish(self, channel: str, index: int, topic: str = TOPIC) -> None:
        """FIN of the n-th message in flight."""
        found = self.channel(channel, topic)
        message = list(found.in_flight)[index]
        self._answer(topic, channel, b"FIN %b\n" % message.id.encode())
        found.finish(message)
        found.unsure.add(message)

    def do_requeue(self, channel: str, index: int, delay: str = "") -> None:
        """REQ of the n-th message in flight."""
        found = self.channel(channel)
        message = list(found.in_flight)[index]
        seconds = _DELAYS[delay]
        self._answer(TOPIC, channel, b"REQ %b %d\n" % (message.id.encode(), int(seconds * 1000)))
        self.model.come_back(
            self.topic, found, [message], "requeued", time.time() + seconds if seconds else 0.0
        )

    def _answer(self, topic: str, channel: str, command: bytes) -> None:
        """Send a command that has no answer, and one that has, so that the first is done."""
        consumer = self._consumer(topic, channel)
        consumer.send(command, b"FIN %b\n" % wire.NO_ID)
        while True:
            frame = consumer.frame()
            if frame.data == b"_heartbeat_":
                consumer.send(b"NOP\n")
                continue
            _same(f"answer to {command!r}", frame.data, wire.NOT_IN_FLIGHT)
            return

    def do_leave(self, channel: str, topic: str = TOPIC) -> None:
        """The consumer's connection ends."""
        self._forget_consumer(topic, channel)
        found = self.channel(channel, topic)
        order = [one for one in self.model.topics[topic].messages if one in found.in_flight]
        self.model.come_back(self.model.topics[topic], found, order, "returned")

    def do_time_out(self, channel: str, count: int = 1) -> None:
        """Another consumer receives messages and lets them time out."""
        found = self.channel(channel)
        taken = self.model.take(self.topic, found, count)
        with Wire(("127.0.0.1", self.nsqd.tcp_port)) as consumer:
            consumer.identify(msg_timeout=_TIMEOUT_MS)
            consumer.subscribe(TOPIC, channel)
            if taken:
                consumer.send(wire.rdy(len(taken)))
            self._receive(consumer, found, taken)
            time.sleep(_TIMEOUT_MS / 1000 + 0.2)
        self.model.come_back(self.topic, found, taken, "timed-out")

    def _consumer(self, topic: str, channel: str) -> Wire:
        consumer = self._consumers.get((topic, channel))
        if consumer is None:
            consumer = self._consumers[topic, channel] = Wire(("127.0.0.1", self.nsqd.tcp_port))
            consumer.identify(msg_timeout=600_000)
            consumer.subscribe(topic, channel)
        return consumer

    def _forget_consumer(self, topic: str, channel: str) -> None:
        consumer = self._consumers.pop((topic, channel), None)
        if consumer is not None:
            consumer.close()

    # --- operators ---

    def do_http(self, verb: str, channel: str, index: int, delay: str = "") -> None:
        """``finish``, ``requeue``, ``send`` or ``cancel`` of the message with that index in the topic."""
        found, message = self.channel(channel), self.topic.messages[index]
        state = found.state(message)[0]
        usable = state == "deferred" if verb in {"send", "cancel"} else state != "finished"
        seconds = _DELAYS[delay]
        query = {"topic": TOPIC, "channel": channel, "id": message.id}
        if verb == "requeue" and delay:
            query["defer"] = str(int(seconds * 1000))
        status, _ = self._post(f"/message/{verb}", query)
        _same(f"POST /message/{verb} of {message} which is {state}", status, 200 if usable else 409)
        if usable:
            self._handled(verb, found, [message], seconds)

    def do_http_all(self, verb: str, channel: str, state: str = "") -> None:
        """The same with ``all=true`` or a state: in one request."""
        found = self.channel(channel)
        messages = [one for one in found.pending() if not state or found.state(one)[0] == state]
        query = {"topic": TOPIC, "channel": channel} | ({"state": state} if state else {"all": "true"})
        answer = json.loads(self._ok(f"/message/{verb}", query))
        _same(f"POST /message/{verb} {query}", (answer["count"], answer["more"]), (len(messages), False))
        self._handled(verb, found, messages, 0.0)

    def _handled(self, verb: str, found: Channel, messages: list[Message], seconds: float) -> None:
        if verb in {"finish", "cancel"}:
            for message in messages:
                found.finish(message)
            self.model.settle()
        else:
            self.model.put_off(self.topic, found, messages, time.time() + seconds if seconds else 0.0)

    def do_send_back(self, channel: str) -> None:
        """All dead letters of a channel that are not in flight go back to it."""
        letters = self.letters(channel)
        there = [
            one
            for one in letters.messages
            if one in letters.held
            or any(one in each.pending() and one not in each.in_flight for each in letters.channels.values())
        ]
        while there and not (self.topic.flowing and self.model.admits(self.topic, len(there))):
            there.pop()
        status, answer = self._post("/dead_letters/send_back", {"topic": letters.name})
        sent = there
        _same("send_back", (status, json.loads(answer)["sent"]), (200, len(sent)))
        for message in sent:
            if message in letters.held:
                letters.held.remove(message)
            for each in letters.channels.values():
                if message not in each.in_flight:
                    each.finish(message)
        back = [Message(one.body, dict(one.headers), only=channel) for one in sent]
        self.model._append(self.topic, back)
        self.model.settle()

    # --- restarts ---

    def do_wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def do_restart(self) -> None:
        """A clean stop and a start."""
        self._end()
        self.nsqd.stop()
        self._start()

    def do_kill(self) -> None:
        """SIGKILL, after a checkpoint."""
        time.sleep(_CHECKPOINT_S)
        wait_until(self._has_checkpoint, "a checkpoint has all changes")
        self.nsqd.kill()
        self.nsqd.wait()
        self._end()
        self._start()

    def do_kill_now(self) -> None:
        """SIGKILL at any moment: the last answers and deliveries may be forgotten, and nothing else."""
        self.nsqd.kill()
        self.nsqd.wait()
        self._end()
        self._start()
        for topic in self.model.topics.values():
            for channel in topic.channels.values():
                self._adopt(topic, channel)

    def _has_checkpoint(self) -> bool:
        return b"\nnsqd_checkpoint_lag_seconds 0.0\n" in self.nsqd.request("GET", "/metrics")[1]

    def _start(self) -> None:
        """Start it when no message falls due during the start."""
        if (due := self.model.next_due()) < time.time() + _START_S:
            time.sleep(max(0.0, due - time.time()) + 0.1)
        self.model.restart()
        self.nsqd.start()

    def _adopt(self, topic: Topic, channel: Channel) -> None:
        """Take over what a kill may have changed: answers of consumers, numbers of attempts."""
        again: list[Message] = []
        shown = {one["id"]: one for one in self._messages(topic.name, channel=channel.name)}
        for message in topic.messages:
            seen = shown.get(message.id)
            state, attempts, _ = channel.state(message)
            if seen is None or topic.holds_for(channel, message):
                continue
            if state == "finished" and seen["state"] == "waiting" and message in channel.unsure:
                again.append(message)
                channel.attempts[message] = seen["attempts"]
            elif attempts and seen["state"] != "finished":
                if seen["attempts"] > attempts:
                    raise Mismatch(f"{message} of {channel.name}: {seen}, model: {attempts} attempts")
                channel.attempts[message] = seen["attempts"]
            if not channel.attempts.get(message):
                channel.attempts.pop(message, None)
        # What was published after the last checkpoint waits behind what is in it.
        waiting = [*channel.queue, *again]
        channel.queue = sorted(waiting, key=lambda one: shown.get(one.id, {}).get("place", 0))

    def _end(self) -> None:
        self.close()
        for topic in self.model.topics.values():
            for channel in topic.channels.values():
                if self.steps[-1][0] != "kill_now":
                    channel.unsure.clear()

    # --- comparison ---

    def _pass_due(self, clear: float = _CLEAR_S) -> None:
        """Wait until a message that is about to fall due has done so."""
        while self.model.next_due() < time.time() + clear:
            time.sleep(max(0.0, self.model.next_due() - time.time()) + 0.2)
            self.model.fall_due(time.time())

    def compare(self) -> None:
        """Compare all that the node shows with the model. Raises Mismatch."""
        deadline = time.monotonic() + _SETTLED_S
        while True:
            try:
                self._compare_all()
            except Mismatch:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
                self._pass_due()
                continue
            return

    def _compare_all(self) -> None:
        statistics = {one["topic_name"]: one for one in self.nsqd.get("/stats?format=json")["topics"]}
        _same("topics", sorted(statistics), sorted(self.model.topics))
        for topic in self.model.topics.values():
            self._learn(topic)
            stats = statistics[topic.name]
            _same(f"depth of {topic.name}", stats["depth"], len(topic.held) + len(topic.held_deferred))
            channels = {one["channel_name"]: one for one in stats["channels"]}
            _same(f"channels of {topic.name}", sorted(channels), sorted(topic.channels))
            for name, channel in topic.channels.items():
                self._compare_channel(topic, channel, channels[name])

    def _learn(self, topic: Topic) -> None:
        """Learn the ids of new messages, and check order, bodies and headers."""
        by_id = {one.id: one for one in topic.messages if one.id}
        unknown = [one for one in topic.messages if not one.id]
        shown = self._messages(topic.name)
        new = [one for one in shown if one["id"] not in by_id]
        _same(f"new messages of {topic.name}", [one["body"] for one in new], [one.body for one in unknown])
        for seen, message in zip(new, unknown, strict=True):
            headers = seen.get("headers", {})
            mine = {name: text for name, text in headers.items() if not name.startswith("dead-")}
            _same(f"headers of {message}", mine, message.headers)
            if message.origin:
                _same("origin", (headers["dead-topic"], headers["dead-channel"]), message.origin)
            message.id = seen["id"]
        known = {one.id: index for index, one in enumerate(topic.messages)}
        order = [known[one["id"]] for one in shown]
        _same(f"order of {topic.name}", order, sorted(order))

    def _compare_channel(self, topic: Topic, channel: Channel, stats: dict[str, Any]) -> None:
        name = f"{topic.name}/{channel.name}"
        counted = (stats["depth"], stats["in_flight_count"], stats["deferred_count"])
        waiting = len(channel.queue) + len(channel.dead_lettering)
        mine = (waiting, len(channel.in_flight), len(channel.deferred))
        _same(f"depth, in flight, deferred of {name}", counted, mine)
        expected = {one.id: (one, *topic.state(channel, one)) for one in topic.messages}
        shown = self._messages(topic.name, channel=channel.name)
        seen = {
            one["id"]: (expected[one["id"]][0], one["state"], one.get("attempts"), one.get("place"))
            for one in shown
        }
        for message_id, entry in expected.items():
            # Only what every channel has finished may be gone.
            if message_id not in seen and entry[1] == "finished" and not self.model.policy(topic.name).retain:
                seen[message_id] = entry
        entries = list(expected.values())
        _same(f"messages of {name}", [seen.get(one.id) for one, *_ in entries], entries)
        for state in STATES:
            ids = [one for one, entry in expected.items() if entry[1] == state]
            gone = {one for one in ids if one not in {each["id"] for each in shown}}
            ids = [one for one in ids if one not in gone]
            listed = [one["id"] for one in self._messages(topic.name, channel=channel.name, state=state)]
            if state == "deferred":
                ids, listed = sorted(ids), sorted(listed)
            _same(f"state={state} of {name}", listed, ids)
            if state != "deferred":
                listed = [
                    one["id"]
                    for one in self._messages(
                        topic.name, channel=channel.name, state=state, contains="m", direction="back"
                    )
                ]
                _same(f"state={state} of {name}, back, with contains", listed, ids[::-1])
        query = {"topic": topic.name, "channel": channel.name, "all": "true", "dry_run": "true"}
        answer = json.loads(self._ok("/message/finish", query))
        _same(f"all of {name}", (answer["count"], answer["more"]), (len(channel.pending()), False))

    # --- requests ---

    def _messages(self, topic: str, **query: str) -> list[dict[str, Any]]:
        path = "/messages?" + urlencode({"topic": topic, "limit": "1000"} | query)
        status, body = self.nsqd.request("GET", path)
        if status != 200:
            raise Mismatch(f"GET {path}: {status} {body!r}")
        return list(json.loads(body)["messages"])

    def _request(self, method: str, path: str, query: dict[str, str], body: str = "") -> tuple[int, bytes]:
        return self.nsqd.request(method, f"{path}?{urlencode(query)}", body.encode())

    def _post(self, path: str, query: dict[str, str], body: str = "") -> tuple[int, bytes]:
        return self._request("POST", path, query, body)

    def _ok(self, path: str, query: dict[str, str]) -> bytes:
        status, answer = self._post(path, query)
        if status != 200:
            raise Mismatch(f"POST {path} {query}: {status} {answer!r}")
        return answer

    def _index(self, topic: Topic, place: int | str | None) -> int:
        return len(topic.messages) if place == "latest" else int(place or 0)

    def _place(self, topic: Topic, place: int | str) -> str:
        if place == "latest" or place == len(topic.messages):
            return "latest"
        return f"id:{topic.messages[int(place)].id}"

    def _sequence(self, message: Message) -> int:
        found = self._messages(TOPIC, **{"from": f"id:{message.id}", "limit": "1"})
        return int(found[0]["sequence"])


def _same(what: str, seen: Any, expected: Any) -> None:
    if seen != expected:
        raise Mismatch(f"{what}:\n  node  {seen}\n  model {expected}")
