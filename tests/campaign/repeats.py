"""Publishes messages with an id again in the random work: within the window they are stored only once.

An OK then promises that the message exists, whichever of the publishes stored it.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from tests.campaign.check import in_order
from tests.campaign.client import pub_ext
from tests.campaign.headed import REPEAT, id_of
from tests.campaign.ledger import Deed
from tests.campaign.model import NEVER, Fact, Message, Topic
from tests.campaign.node import KEEPS
from tests.support.simulated_loop import SECOND

if TYPE_CHECKING:
    from tests.campaign.refusals import DedupBudget
    from tests.campaign.workload import Workload

WINDOW_NS: Final = 12 * SECOND
# nsqd takes its times a moment after the request.
_SLACK_NS: Final = SECOND // 5
# One of the last so many messages is published again.
_LATEST: Final = 6


class Repeats:
    """Publishes again, and checks the results."""

    def __init__(self, work: "Workload") -> None:
        self._work = work
        # Id -> the message that was stored last with it, or is about to be.
        self._last: dict[str, Message] = {}
        # Ids with a pending answer.
        self._asked: set[str] = set()

    def published(self, message: Message) -> None:
        """Note a message that is about to be stored, if it has an id."""
        name = id_of(message.body)
        if name:
            self._last.pop(name, None)
            self._last[name] = message

    def started(self) -> None:
        """Forget pending answers, because a new node has started."""
        self._asked.clear()

    def publish_one(self) -> None:
        """Publish one of the last messages with an id again."""
        work = self._work
        topic = work.model.topic(KEEPS)
        names = [
            name
            for name, first in self._last.items()
            if first.topic is topic and first.body in work.model.messages and name not in self._asked
        ]
        # A node that has not read the first publish yet has no topic.
        here = work.node.broker.topics.get(KEEPS)
        if topic is None or here is None or not names or work.requests.is_leaving(topic):
            return
        first = self._last[work.rng.choice(names[-_LATEST:])]
        body = REPEAT + b"%06d %b " % (work.next_number(), id_of(first.body).encode())
        sure = self._is_sure(first)
        client = work.publishing()
        position, sent_ns = work.position, work.loop.clock.wall_ns
        fact = work.model.fact(position)
        if not sure:
            work.model.publish(topic, body, fact).published_ns = sent_ns
        work.note(f"repeat {body[:21].decode()}{' for sure' if sure else ''}")
        work.done[Deed.REPEATED] += 1
        self._asked.add(id_of(body))
        room = work.rules.refusals.room(KEEPS, 1)
        # If the repeat is stored, its sequence is at or after ``sequence_end`` of this topic.
        work.await_reply(
            partial(self._answered, topic, first, body, fact, room, sure=sure, end=here.sequence_end)
        )
        client.say(pub_ext(KEEPS, body))

    def _is_sure(self, first: Message) -> bool:
        """Say whether the message is certainly not stored a second time."""
        work = self._work
        age_ns = work.loop.clock.wall_ns - first.published_ns
        was_told = first.stored.answered <= work.position
        calm = not (work.faulty or work.was_faulty)
        return was_told and calm and 0 <= age_ns < WINDOW_NS - _SLACK_NS and in_order(work.model)

    def _answered(
        self,
        topic: Topic,
        first: Message,
        body: bytes,
        fact: Fact,
        room: "DedupBudget",
        ok: bool,
        data: bytes,
        *,
        sure: bool,
        end: int,
    ) -> None:
        work = self._work
        self._asked.discard(id_of(body))
        stored = body in work.node.bodies_from(topic.name, end).values()
        if not ok:
            if work.rules.refusals.judge(topic.name, 1, room, data):
                if stored or sure:
                    work.break_off(f"{body[:21]!r} is {'stored' if stored else 'known'} and was refused")
                work.model.refused(topic, body)
            elif not work.faulty:
                work.break_off(f"publishing again was answered with {data!r}")
        elif topic.name not in work.node.broker.topics or not topic.exists:
            # The topic has been deleted, so its log can no longer be checked.
            return
        elif stored and sure:
            work.break_off(f"{body[:21]!r} was stored once more")
        elif stored:
            fact.answered = min(fact.answered, work.position)
            self.published(work.model.messages[body])
        else:
            # The first one exists, whatever its own publisher was told.
            if first.stored.answered == NEVER:
                first.stored.answered = work.position
            topic.made.answered = min(topic.made.answered, work.position)
            if not (sure or work.faulty):
                work.model.refused(topic, body)
