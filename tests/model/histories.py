"""Histories: directed ones, each of which found a fault, and random ones."""

import random
import time
from typing import Any, Final

from tests.model.model import FAR_S, Channel
from tests.model.played import Played, Step

DIRECTED: Final[dict[str, list[Step]]] = {
    # A channel that begins at or before a deferred message gets it deferred.
    "deferred_before_start": [
        ("create", "a"),
        ("pub", 1, "far"),
        ("create", "b", 0),
        ("seek", "a", "latest"),
        ("seek", "a", 0),
        ("kill",),
        ("create", "c", 0),
        ("restart",),
        ("http", "cancel", "a", 0),
        ("http", "cancel", "b", 0),
        ("seek", "b", 0),
        ("take", "a", 1),
        ("take", "b", 1),
        ("take", "c", 1),
    ],
    # Requests for all messages take as long as there are messages, not numbers.
    "all_after_restarts": [
        ("create", "a"),
        ("pub",),
        *[("pub",), ("http", "finish", "a", 1), ("wait", 2), ("restart",)],
        *[("pub",), ("http", "finish", "a", 2), ("wait", 2), ("restart",)],
        *[("pub",), ("http", "finish", "a", 3), ("wait", 2), ("restart",)],
        ("pub",),
        ("wait", 5),
        ("http_all", "requeue", "a"),
    ],
    # A message that a channel never gets is not waiting on it.
    "sent_back_to_another": [
        ("policy", "", {"retain": True, "max_attempts": 1}),
        ("create", "a"),
        ("create", "b"),
        ("pub",),
        ("http_all", "finish", "b"),
        ("take", "a", 1),
        ("requeue", "a", 0),
        ("send_back", "a"),
    ],
    "committed_at_paused_topic": [
        ("create", "a"),
        ("pause",),
        ("pub", 2),
        ("commit", "a", 1),
        ("create", "b", "latest"),
        ("create", "c", 1),
        ("restart",),
        ("unpause",),
    ],
    "sought_at_paused_topic": [
        ("policy", "", {"retain": True}),
        ("create", "a"),
        ("pub", 2),
        ("pause",),
        ("pub", 2),
        ("seek", "a", "latest"),
    ],
    # Messages on their way to the dead letters have a state, and an operator can have them.
    "dead_lettering": [
        ("policy", "", {"retain": True, "max_attempts": 1}),
        ("policy", "", {"max_depth": 1}, False, "t.a.dead"),
        ("create", "a"),
        ("pub", 4),
        ("take", "a", 4),
        ("requeue", "a", 0),
        ("requeue", "a", 0),
        ("requeue", "a", 0),
        ("requeue", "a", 0),
        ("http", "finish", "a", 1),
        ("http", "requeue", "a", 2),
        ("http_all", "finish", "a", "dead_lettering"),
    ],
    # The place of a message says when it is delivered.
    "place_after_due": [
        ("create", "a"),
        ("pub", 1, "later"),
        ("pub",),
        ("restart",),
        ("wait", 8),
        ("take", "a", 2),
    ],
    # A delivery counts in `attempts` even if nothing else happens before a kill.
    "attempts_in_flight": [
        ("policy", "", {"max_attempts": 2}),
        ("create", "a"),
        ("pub",),
        ("wait", 3),
        ("take", "a", 1),
        ("kill",),
        ("take", "a", 1),
        ("requeue", "a", 0),
    ],
    # A bound that drops messages of a paused topic is confirmed first.
    "bound_at_paused_topic": [
        ("create", "a"),
        ("pause",),
        ("pub", 5),
        ("policy", "a", {"max_depth": 2, "drop_oldest": True}),
        ("policy", "a", {"max_depth": 2, "drop_oldest": True}, True),
        ("unpause",),
    ],
    # After a restart messages that were never delivered come first.
    "order_after_restart": [
        ("create", "a"),
        ("pub", 4),
        ("take", "a", 3),
        ("requeue", "a", 1),
        ("finish", "a", 0),
        ("pub", 2),
        ("restart",),
        ("take", "a", 5),
    ],
    # The sentences of the pages.
    "attempts_after_replay": [
        ("policy", "", {"retain": True, "max_attempts": 2}),
        ("create", "a"),
        ("pub", 3),
        ("take", "a", 3),
        ("finish", "a", 0),
        *[("requeue", "a", 0), ("take", "a", 1), ("requeue", "a", 1)],
        ("seek", "a", 0),
        ("take", "a", 3),
    ],
    "send_back_into_full_channel": [
        ("policy", "", {"max_attempts": 1, "max_depth": 3}),
        ("create", "a"),
        ("pub", 2),
        ("take", "a", 2),
        ("requeue", "a", 0),
        ("requeue", "a", 0),
        ("pub", 2),
        ("send_back", "a"),
        ("send_back", "a"),
        ("http_all", "finish", "a"),
        ("send_back", "a"),
    ],
    "letter_in_flight_stays": [
        ("policy", "", {"max_attempts": 1}),
        ("create", "a"),
        ("pub", 2),
        ("take", "a", 2),
        ("requeue", "a", 0),
        ("requeue", "a", 0),
        ("create", "d", None, "t.a.dead"),
        ("take", "d", 1, "t.a.dead"),
        ("send_back", "a"),
    ],
    "operator_and_policies": [
        ("policy", "", {"max_attempts": 1, "retry_delay": True}),
        ("create", "a"),
        ("pub", 2),
        ("take", "a", 2),
        ("http", "requeue", "a", 0),
        ("http", "requeue", "a", 1, "far"),
    ],
    "retry_delay_after_time_out_and_kill": [
        ("policy", "", {"retry_delay": True}),
        ("create", "a"),
        ("pub", 3),
        ("time_out", "a", 1),
        ("take", "a", 1),
        ("leave", "a"),
        ("take", "a", 1),
        ("kill",),
    ],
    "paused_topic": [
        ("create", "a"),
        ("pub", 2),
        ("pause",),
        ("pub", 3),
        ("pub", 1, "far"),
        ("create", "b"),
        ("empty", "a"),
        ("commit", "a", 3),
        ("seek", "b", 4),
        ("restart",),
        ("create", "c"),
        ("unpause",),
        *[("pause",), ("pub", 2), ("empty",), ("unpause",)],
    ],
    "bound_with_nothing_to_drop": [
        ("policy", "", {"max_depth": 2, "drop_oldest": True}),
        ("create", "a"),
        ("pub", 1, "far"),
        ("pub",),
        ("take", "a", 1),
        ("pub", 2),
        ("pub", 1, "far"),
    ],
    "order_among_redelivered": [
        ("create", "a"),
        ("pub", 6),
        ("take", "a", 5),
        ("requeue", "a", 4),
        ("requeue", "a", 2),
        ("requeue", "a", 0),
        ("restart",),
        ("take", "a", 3),
        ("requeue", "a", 2),
        ("requeue", "a", 0),
        ("take", "a", 6),
    ],
}

# Settings that random histories choose from.
_POLICIES: Final[list[dict[str, Any]]] = [
    {},
    {"max_attempts": 1},
    {"max_attempts": 2},
    {"max_depth": 4, "drop_oldest": True},
    {"max_depth": 7},
    {"retry_delay": True},
    {"max_attempts": 2, "max_depth": 8},
]


class RandomHistory:
    """Draws steps that are possible in the present state of the model."""

    def __init__(self, played: Played, seed: int) -> None:
        self._played = played
        self._dice = random.Random(seed)
        self._base = {"retain": self._dice.random() < 0.6, "dedup": self._dice.random() < 0.4}

    def first(self) -> list[Step]:
        """The steps that each history begins with."""
        settings = self._base | (self._dice.choice(_POLICIES) if self._dice.random() < 0.7 else {})
        steps: list[Step] = [("policy", "", settings, True)]
        return steps + ([("create", "a")] if self._dice.random() < 0.8 else [])

    def last(self) -> list[Step]:
        """The steps at the end: everything is delivered, in order."""
        channels = self._played.topic.channels
        paused = [("unpause", name) for name, one in channels.items() if one.paused]
        unpaused: list[Step] = [("unpause",)] if self._played.topic.paused else []
        return unpaused + paused + [("take", name, 200) for name in channels]

    def next(self) -> Step:
        while True:
            step = self._draw()
            if step is not None:
                return step

    def _draw(self) -> Step | None:
        dice, topic, model = self._dice, self._played.topic, self._played.model
        kinds = ["pub", "channel", "answer", "take", "operator", "flow", "rare", "replay"]
        kind = dice.choices(kinds, [24, 4, 26, 20, 12, 6, 4, 5])[0]
        # One delay runs at a time: two that end at nearly one moment have no certain order.
        next_due = min([*topic.held_deferred.values(), model.next_due()])
        soon = next_due < time.time() + FAR_S / 2
        delay = dice.choice(["", "", "", "far", "" if soon else "soon"])
        if kind == "pub":
            if self._base["dedup"] and dice.random() < 0.3:
                return ("pub", 1, delay, f"d{dice.randrange(6)}")
            count = 1 if delay else dice.choice([1, 1, 1, 2, 3])
            return ("pub", count, delay, "", dice.choice(["tcp", "http"]))
        if kind == "channel":
            name = dice.choice("abc")
            if name not in topic.channels:
                start = dice.choice([None, None, "latest", self._index()]) if self._base["retain"] else None
                return ("create", name, start)
            return ("delete", name) if dice.random() < 0.15 else None
        if not topic.channels:
            return ("create", "a")
        channel = dice.choice(list(topic.channels.values()))
        if kind == "take":
            if dice.random() < 0.08 and not channel.paused and not channel.in_flight:
                return ("time_out", channel.name, dice.choice([1, 2]))
            return ("take", channel.name, dice.choice([1, 1, 2, 3]))
        if kind == "answer":
            return self._answer(channel, delay)
        if kind == "operator":
            return self._operator(channel, delay)
        if kind == "flow":
            owner = dice.choice([topic, channel])
            name = "" if owner is topic else channel.name
            return ("unpause" if owner.paused else "pause", name)
        return self._replay(channel) if kind == "replay" else self._rare(channel)

    def _answer(self, channel: Channel, delay: str) -> Step | None:
        if not channel.in_flight:
            return None
        index = self._dice.randrange(len(channel.in_flight))
        if self._dice.random() < 0.06:
            return ("leave", channel.name)
        if self._dice.random() < 0.45:
            return ("requeue", channel.name, index, delay)
        return ("finish", channel.name, index)

    def _operator(self, channel: Channel, delay: str) -> Step | None:
        dice, topic = self._dice, self._played.topic
        verb = dice.choice(["finish", "requeue", "send", "cancel"])
        if dice.random() < 0.2:
            state = "deferred" if verb in {"send", "cancel"} else dice.choice(["", "waiting", "in_flight"])
            return ("http_all", verb, channel.name, state)
        index = self._index()
        visible = index is not None and (self._base["retain"] or topic.messages[index] in channel.pending())
        if index is None or not visible or topic.holds_for(channel, topic.messages[index]):
            return None
        return ("http", verb, channel.name, index, delay if verb == "requeue" else "")

    def _replay(self, channel: Channel) -> Step | None:
        if not self._base["retain"]:
            return None
        index = self._index()
        if index is None:
            return None
        return (
            self._dice.choice(["seek", "commit"]),
            channel.name,
            self._dice.choice([index, index, "latest"]),
        )

    def _rare(self, channel: Channel) -> Step | None:
        dice = self._dice
        what = dice.choice(["restart", "kill", "kill_now", "empty", "policy", "send_back"])
        if what in {"restart", "kill", "kill_now"}:
            return (what,) if self._may_end(what) else None
        if what == "empty":
            return ("empty", dice.choice(["", channel.name]))
        if what == "policy":
            if dice.random() < 0.5:
                return ("policy", "", self._base | dice.choice(_POLICIES), dice.random() < 0.5)
            return ("policy", channel.name, dice.choice(_POLICIES), dice.random() < 0.5)
        known = f"t.{channel.name}.dead" in self._played.model.topics
        return ("send_back", channel.name) if known else None

    def _may_end(self, what: str) -> bool:
        """Whether the state after such an end of the process is certain."""
        model, channels = self._played.model, self._played.topic.channels.values()
        if what == "kill_now" and (
            len(model.topics) > 1
            or any(step[0] == "policy" and step[2].get("drop_oldest") for step in self._played.steps)
        ):
            # What was dropped and which dead letters were moved is known from the next checkpoint on.
            return False
        # Otherwise such a message becomes a dead letter while the node stops, or it does not.
        return not any(map(self._has_last_try, channels))

    def _has_last_try(self, channel: Channel) -> bool:
        """Whether a message is in flight that becomes a dead letter when its consumer leaves."""
        most = 2 * self._played.model.policy("t", channel.name).max_attempts
        return bool(most) and any(channel.attempts[one] >= most for one in channel.in_flight)

    def _index(self) -> int | None:
        count = len(self._played.topic.messages)
        return self._dice.randrange(count) if count else None
