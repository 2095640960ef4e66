"""Publishing again in the random work what has an id: within its window that is stored once.

Who is told OK then is promised that the message is there, whichever of his publishes stored it.
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
    from tests.campaign.refusals import Room
    from tests.campaign.workload import Workload

WINDOW_NS: Final = 12 * SECOND
# Times are taken a moment after they were asked for.
_SLACK_NS: Final = SECOND // 5
# Of the last so many one is published again.
_LATEST: Final = 6


class Repeats:
    """Publishes again, and watches what becomes of it."""

    def __init__(self, work: "Workload") -> None:
        self._work = work
        # By id the message that was stored last with it, or is about to be.
        self._last: dict[str, Message] = {}
        # Ids of which an answer is awaited.
        self._asked: set[str] = set()

    def published(self, message: Message) -> None:
        """A message is about to be stored; perhaps it has an id."""
        name = id_of(message.body)
        if name:
            self._last.pop(name, None)
            self._last[name] = message

    def started(self) -> None:
        """Nobody waits for anything any more."""
        self._asked.clear()

    def publish_one(self) -> None:
        """Publish once more one of the last that had an id."""
        work = self._work
        topic = work.model.topic(KEEPS)
        names = [
            name
            for name, first in self._last.items()
            if first.topic is topic and first.body in work.model.messages and name not in self._asked
        ]
        if topic is None or not names or work.requests.is_leaving(topic):
            return
        first = self._last[work.rng.choice(names[-_LATEST:])]
        body = REPEAT + b"%06d %b " % (work.next_number(), id_of(first.body).encode())
        sure = self._is_sure(first)
        # What is stored of it is behind this.
        here = work.node.broker.topics[KEEPS]
        client = work.publishing()
        position, sent_ns = work.position, work.loop.clock.wall_ns
        fact = work.model.fact(position)
        if not sure:
            work.model.publish(topic, body, fact).published_ns = sent_ns
        work.note(f"repeat {body[:21].decode()}{' for sure' if sure else ''}")
        work.done[Deed.REPEATED] += 1
        self._asked.add(id_of(body))
        room = work.rules.refusals.room(KEEPS, 1)
        work.await_reply(
            partial(self._answered, topic, first, body, fact, room, sure=sure, end=here.sequence_end)
        )
        client.say(pub_ext(KEEPS, body))

    def _is_sure(self, first: Message) -> bool:
        """Whether it certainly is not stored a second time."""
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
        room: "Room",
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
            # It was deleted meanwhile, so nobody can see any more whether this is in its log.
            return
        elif stored and sure:
            work.break_off(f"{body[:21]!r} was stored once more")
        elif stored:
            fact.answered = min(fact.answered, work.position)
            self.published(work.model.messages[body])
        else:
            # Then the first is there, whatever its own publisher was told.
            if first.stored.answered == NEVER:
                first.stored.answered = work.position
            topic.made.answered = min(topic.made.answered, work.position)
            if not (sure or work.faulty):
                work.model.refused(topic, body)
