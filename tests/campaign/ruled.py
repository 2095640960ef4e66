"""Policies in the random work: time to live, attempts with dead letters, bounds, delays, ids.

Each third seed has them, and some more of the later seeds. From the moment at which a policy may take a
message, the message may exist or not. The work ends with Broken if a node takes a message earlier, delivers
an expired one, tries one too often, holds more than a bound, or delivers before a delay is over.
`refusals`, `repeats` and `letters` check the rest.
"""

from typing import TYPE_CHECKING, Final

from nsqd.engine.settings import NOTHING, Settings, SettingsOf
from tests.campaign.check import in_order
from tests.campaign.ledger import Deed
from tests.campaign.letters import Letters
from tests.campaign.model import NEVER, Channel, Debt, Fact, Topic
from tests.campaign.node import KEEPS, MSG_TIMEOUT_NS, RETAIN_NS, settings_of
from tests.campaign.places import DEAD, DIES
from tests.campaign.refusals import BOUND, FILLS, Refusals
from tests.campaign.repeats import WINDOW_NS, Repeats
from tests.support.simulated_loop import SECOND

if TYPE_CHECKING:
    from tests.campaign.workload import Reader, Workload

EXPIRES: Final = ("orders", "a")
FORGETS: Final = (KEEPS, "a")
RETRIES: Final = FILLS
TTL_NS: Final = 5 * SECOND
ATTEMPTS: Final = 2
DEPTH: Final = 8
# A message that comes back waits DELAY_NS, twice as long the next time, and at most LONGEST_NS.
DELAY_NS: Final = SECOND // 4
LONGEST_NS: Final = SECOND * 3 // 4
# The node may see the clock this late.
_SLACK_NS: Final = SECOND // 5

_RULES: Final = {
    EXPIRES: Settings(ttl_ns=TTL_NS),
    DIES: Settings(max_attempts=ATTEMPTS),
    FORGETS: Settings(max_depth=DEPTH, drop_oldest=True, retain_time_ns=RETAIN_NS),
    RETRIES: Settings(max_depth=BOUND, retry_delay_ns=DELAY_NS, retry_delay_max_ns=LONGEST_NS),
    (KEEPS, ""): Settings(retain_time_ns=RETAIN_NS, dedup_window_ns=WINDOW_NS),
}
# Additional actions of workloads with policies, and their weights.
MORE: Final = {"repeat": 8, "send_back": 5, "fill_disk": 2}
# How long the disk stays nearly full, in seconds.
_FULL_S: Final = (1.5, 3.0, 6.0)


def is_ruled(seed: int) -> bool:
    return seed % 3 == 2 or (seed > 24 and seed % 4 == 0)


def rules_of(topic_name: str, channel_name: str) -> Settings:
    """Return the settings of the policies."""
    found = _RULES.get((topic_name, channel_name), NOTHING)
    return settings_of(topic_name, channel_name) if found is NOTHING else found


class Rules:
    """Watches one workload; does nothing unless it is *ruled*."""

    def __init__(self, work: "Workload", *, ruled: bool) -> None:
        self._work = work
        self.ruled = ruled
        self.refusals = Refusals(work)
        self.repeats = Repeats(work)
        self.letters = Letters(work)
        self.settings_of: SettingsOf = rules_of if ruled else settings_of
        # The disk's position at the last look; messages found missing now were taken after it.
        self._looked = 0
        # Of the channel that drops its oldest: how many it held then, and all messages that came so far.
        self._held = 0
        self._came: set[Debt] = set()
        # Messages that were requeued after their last attempt, and the node that got the requeue.
        self._tried: dict[Debt, object] = {}
        # On the channel with delays: last delivery of each message, as time, attempts, node and consumer.
        self._given: dict[Debt, tuple[int, int, object, Reader]] = {}

    def delivered(self, reader: "Reader", debt: Debt, attempts: int, id_: bytes) -> None:
        """Check a delivery. Raises Broken if a policy forbids it."""
        topic, channel = reader.topic, reader.channel
        if not self.ruled:
            return
        seq = self._work.node.broker.ids.decode(id_)
        if topic.exclusive.get(seq, channel.name) != channel.name:
            self._work.break_off(f"{channel.name} was given what came back to {topic.exclusive[seq]}")
        name, body = (topic.name, channel.name), debt.message.body
        if name == EXPIRES:
            late_ns = self._work.loop.clock.wall_ns - debt.message.published_ns - TTL_NS
            # Skipped after faults, because the node looks again later at messages that it could not read.
            calm = not (self._work.faulty or self._work.was_faulty)
            if late_ns > _SLACK_NS and in_order(self._work.model) and calm:
                self._work.break_off(f"{body[:24]!r} came {late_ns / SECOND:.1f} s after it had expired")
        elif name == DIES:
            if self._tried.get(debt) is self._work.node:
                self._work.break_off(f"{body[:24]!r} came again after its last attempt")
            if attempts >= ATTEMPTS:
                channel.mortal.setdefault(body, Fact(self._work.position))
        elif name == RETRIES:
            self._look_at_delay(reader, debt, attempts)

    def _look_at_delay(self, reader: "Reader", debt: Debt, attempts: int) -> None:
        """Check that a message that timed out comes only after its delay."""
        work = self._work
        now_ns = work.loop.clock.monotonic_ns
        before = self._given.get(debt)
        self._given[debt] = (now_ns, attempts, work.node, reader)
        if before is None or before[2] is not work.node or not before[3].holds(debt):
            return
        waited_ns = now_ns - before[0]
        least_ns = MSG_TIMEOUT_NS + _RULES[RETRIES].retry_after_ns(before[1])
        if waited_ns < least_ns:
            work.break_off(
                f"{debt.message.body[:24]!r} came {waited_ns / SECOND:.2f} s after attempt {before[1]}"
            )

    def retry_after_ns(self, topic: Topic, channel: Channel, attempts: int) -> int:
        """Return the delay of a message that is requeued without one."""
        if not self.ruled or (topic.name, channel.name) != RETRIES:
            return 0
        # Computed independently of the node's code.
        return (DELAY_NS, 2 * DELAY_NS, LONGEST_NS)[min(attempts, 3) - 1]

    def lives_again(self, debt: Debt) -> None:
        """Note that a dead letter was sent back."""
        self._tried.pop(debt, None)

    def sought(self, topic: Topic, channel: Channel, pending: dict[bytes, int]) -> None:
        """Note that a channel was set to a position, or created there; *pending* is body -> sequence."""
        if any(topic.exclusive.get(seq, channel.name) != channel.name for seq in pending.values()):
            self._work.break_off(f"{topic.name}/{channel.name} has what came back to another")
        # Letters that came back to a deleted channel of that name are also in the log.
        for one in topic.channels:
            if one.name == channel.name:
                channel.doubled |= one.returned.keys()
        # Messages that had died there may be delivered again.
        for debt in channel.debts.values():
            self._tried.pop(debt, None)

    def started(self) -> None:
        """Note that a node has started."""
        self.refusals.started()
        self.repeats.started()

    def dies(self, topic: Topic, channel: Channel, debt: Debt, id_: bytes, attempts: int) -> bool:
        """Say whether a message requeued after *attempts* becomes a dead letter. Raises Broken."""
        if not self.ruled or (topic.name, channel.name) != DIES or attempts < ATTEMPTS:
            return False
        self._tried[debt] = self._work.node
        self._work.done[Deed.DIED] += 1
        node = self._work.node
        here = node.broker.topics.get(topic.name)
        if here is None or channel.name not in here.channels:
            return True
        if node.is_alive(topic.name, channel.name, node.broker.ids.decode(id_)):
            self._work.break_off(f"{debt.message.body[:24]!r} lives on after its last attempt")
        return True

    def look(self, *, rested: bool = False) -> None:
        """Note what may have been taken since the last look; if *rested*, also check the bounds."""
        if not self.ruled:
            return
        if rested:
            self.refusals.look()
        wall_ns, position = self._work.loop.clock.wall_ns, self._work.position
        for topic, channel in self._here_until_now(EXPIRES):
            old = (one.number for one in topic.messages if one.published_ns + TTL_NS - _SLACK_NS <= wall_ns)
            # Messages before it are older, whatever the clock showed then.
            newest = max(old, default=-1)
            for debt in self._open(channel):
                if debt.message.number <= newest:
                    self._may_go(debt)
                    self._work.done[Deed.EXPIRED] += 1
        living = self._channels(FORGETS)
        for topic, channel in living:
            self._look_at_bound(topic, channel, rested=rested)
        for pair in self._here_until_now(FORGETS):
            if pair not in living:
                for debt in self._open(pair[1]):
                    self._may_go(debt)
        self._looked = position

    def _look_at_bound(self, topic: Topic, channel: Channel, *, rested: bool) -> None:
        came = set(channel.debts.values()) - self._came
        self._came |= came
        if self._held + len(came) > DEPTH:
            # Only the node knows which of them waits first.
            for debt in self._open(channel):
                self._may_go(debt)
                self._work.done[Deed.DROPPED] += 1
        here = self._work.node.broker.topics.get(topic.name)
        there = here.channels.get(channel.name) if here else None
        self._held = there.backlog.count() if there is not None else 0
        # A channel that was created just now has not had its first turn.
        settled = rested and not self._work.faulty and there not in self._work.node.broker.wake
        if settled and there is not None and there.backlog.pending.count and self._held > DEPTH:
            self._work.break_off(f"{there} has a backlog of {self._held}, and its bound is {DEPTH}")

    def is_dead(self, body: bytes) -> bool:
        """Say whether the message is among the dead letters."""
        return self.ruled and body in self._work.node.waiting_letters(DEAD).values()

    def fill_disk(self) -> None:
        """Let the disk be nearly full for a while."""
        self.refusals.fill(self._work.rng.choice(_FULL_S))

    def _may_go(self, debt: Debt) -> None:
        debt.dropped = Fact(self._looked)

    def _here_until_now(self, name: tuple[str, str]) -> list[tuple[Topic, Channel]]:
        """Return all channels of that name since the last look, including those deleted since then."""
        return [
            (topic, channel)
            for topic in self._work.model.incarnations(name[0])
            for channel in topic.channels
            if channel.name == name[1] and (channel.removed is None or channel.removed.asked >= self._looked)
        ]

    def _channels(self, name: tuple[str, str]) -> list[tuple[Topic, Channel]]:
        topic = self._work.model.topic(name[0])
        channel = topic.channel(name[1]) if topic else None
        return [(topic, channel)] if topic and channel else []

    @staticmethod
    def _open(channel: Channel) -> list[Debt]:
        return [debt for debt in channel.debts.values() if debt.finished == NEVER and debt.dropped is None]
