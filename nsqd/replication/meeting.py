"""The keeper's side of a meeting: what it says to a home that is back. No socket, no clock."""

from collections.abc import Callable
from typing import Final

from nsqd.engine import carried, facts
from nsqd.engine.carried_topic import CarriedTopic
from nsqd.log.ranges import Ranges
from nsqd.replication.carried_copy import CarrierJob
from nsqd.replication.carrier import Carrier
from nsqd.replication.for_good import ForGood
from nsqd.replication.frames import Ask, Fellows, Finished, Gone, Had, Refuse, StillOut, Told
from nsqd.replication.framing import in_parts
from nsqd.replication.holdings import Holdings, add_finished
from nsqd.replication.inherited import NoteForGood
from nsqd.replication.keeper import KeeperLink
from nsqd.replication.keeper_states import KeeperState
from nsqd.replication.willing import Keeping

# How often a home is asked what it has, while older copies of it are here.
ASK_EVERY_NS: Final = 5_000_000_000
# The appointment in `Gone` that means: there is no copy at all.
NO_COPY: Final = (1 << 64) - 1


class KeeperMeeting:
    """Joins the connections of a keeper to what it carries; :meth:`tick` is called a few times a second."""

    def __init__(
        self, keeping: Keeping[KeeperLink], carrier: Carrier, wall_ns: Callable[[], int] = lambda: 0
    ) -> None:
        """*wall_ns* is the wall clock, for times that people read."""
        self._keeping = keeping
        self._carrier = carrier
        self._wall_ns = wall_ns
        self._now_ns = 0
        # Answers that are incomplete, and when they were asked for.
        self._answers: dict[bytes, Holdings] = {}
        self._asked_ns: dict[bytes, int] = {}
        # How many older copies each home had here when it was last told.
        self._counted: dict[bytes, int] = {}
        keeping.came, keeping.went, keeping.released = self._came, self._went, carrier.is_released
        keeping.heard, keeping.deleted = self._heard, carrier.deleted
        keeping.given, keeping.not_back = self._given, carrier.inherited.not_back
        # Notes on homes that are gone permanently, which no thread is writing yet.
        self._notes: list[NoteForGood] = []
        keeping.fellows = carrier.fellows.note

    def _came(self, link: KeeperLink) -> None:
        assert link.hello is not None  # noqa: S101 - it was welcomed
        identity = link.hello.identity
        self._forget(identity)
        self._carrier.came(identity, self._now_ns, visit=link.is_visit, by_keeper=link.hello.stands_in)
        if self._carrier.is_released(identity):
            # Nothing was given out here.
            link.say(Told())
        successors = self._carrier.successors.of(identity)
        if successors:
            # The home visits them; otherwise they would give out what it has.
            link.say(Fellows(successors))

    def _went(self, link: KeeperLink, for_good: bool) -> None:
        assert link.hello is not None  # noqa: S101 - it was welcomed
        self._forget(link.hello.identity)
        self._carrier.went(link.hello.identity, self._now_ns, for_good=for_good)

    def _forget(self, identity: bytes) -> None:
        for known in (self._answers, self._asked_ns, self._counted):
            known.pop(identity, None)

    def _heard(self, link: KeeperLink, frame: Had | Finished | Told) -> None:
        assert link.hello is not None  # noqa: S101 - it was welcomed
        identity = link.hello.identity
        answer = self._answers.get(identity)
        if answer is None:
            # The home was not asked.
            return
        if isinstance(frame, Told):
            del self._answers[identity]
            self._carrier.answered(identity, answer)
            return
        name = link.topics.get(frame.folder, "")
        if isinstance(frame, Had):
            answer.held[name] = [*answer.held.get(name, []), *frame.ranges]
        else:
            add_finished(answer, name, frame)

    def at(self, now_ns: int) -> None:
        """Set the time: a home is about to come, after a time without ticks."""
        self._now_ns = now_ns

    @property
    def is_idle(self) -> bool:
        """Whether there is no home to meet and no copy to look at."""
        return not self._keeping.links and not any(True for _ in self._carrier)

    def _given(self, link: KeeperLink, appointment: int) -> None:
        """A home leaves permanently; it is told that it is accepted when the note is durable."""
        assert link.hello is not None  # noqa: S101 - it was welcomed
        identity, copies = link.hello.identity, self._keeping.copies
        if appointment not in copies.appointments(identity):
            link.refuse(Refuse.NO_COPY, f"there is no copy of appointment {appointment} here")
            return
        by_keeper = self._carrier.inherited.by_keeper(identity, link.hello)
        note = ForGood(appointment, link.hello.address, self._wall_ns(), by_keeper)
        self._notes.append(NoteForGood(copies, identity, note, link))

    def tick(self, now_ns: int) -> "list[CarrierJob | NoteForGood]":
        """Jobs to be run now, in any thread; each is handed back to :meth:`ended`."""
        self._now_ns = now_ns
        for link in list(self._keeping.links.values()):
            link.look_at_offer()
            link.look_at_drain()
        links = self._keeping.links
        hear = {
            identity
            for identity, link in links.items()
            if link.waits_for_release or (link.is_visit and link.named)
        }
        jobs = self._carrier.tick(now_ns, hear)
        for identity in hear:
            topics = self._carrier.to_tell(identity, now_ns)
            if topics is not None:
                _tell(links[identity], topics)
                links[identity].say(Told())
        for identity, link in links.items():
            self._ask(identity, link, now_ns)
        notes, self._notes = self._notes, []
        return [*notes, *jobs]

    def _ask(self, identity: bytes, link: KeeperLink, now_ns: int) -> None:
        """Ask a home what it has, if there are older copies of it here."""
        if not (link.named if link.is_visit else link.state is KeeperState.COPYING):
            return
        if not link.is_visit:
            self._carrier.began(identity, link.appointment, now_ns, has_topics=bool(link.topics))
        left = len(self._carrier.left_over(identity))
        if left and now_ns - self._asked_ns.get(identity, -ASK_EVERY_NS) >= ASK_EVERY_NS:
            self._asked_ns[identity] = now_ns
            self._answers[identity] = Holdings()
            link.say(Ask(identity, 0))
        if left != self._counted.get(identity, -1):
            self._counted[identity] = left
            if not left:
                # All older copies that were here are gone.
                link.say(Gone(link.appointment - 1 if link.appointment else NO_COPY))

    def ended(self, job: "CarrierJob | NoteForGood", error: Exception | None, now_ns: int) -> None:
        """A job has run, or failed."""
        if isinstance(job, NoteForGood):
            self._noted(job, error)
            return
        identity = job.copy.identity
        self._carrier.ended(job, error, now_ns)
        link = self._keeping.links.get(identity)
        if link is not None and link.waits_for_release and self._carrier.is_released(identity):
            link.released()

    def _noted(self, job: NoteForGood, error: Exception | None) -> None:
        if error is not None:
            job.link.refuse(Refuse.DISK, f"the hand-over cannot be noted: {error}")
            return
        self._carrier.inherited.noted(job)
        now = self._keeping.links.get(job.identity)
        if now is not None and now.hello is not None and not now.hello.stands_in and job.note.by_keeper:
            # Its home has come at this moment, and replaced the keeper that spoke for it.
            try:
                self._carrier.inherited.came_back(job.identity)
            except OSError as failed:
                now.refuse(Refuse.DISK, f"the keeper's disk: {failed}")
        elif job.link.closing:
            # The peer has not heard and asks again; until then this node is a keeper whose home is gone.
            self._carrier.went(job.identity, self._now_ns, for_good=True)
        else:
            job.link.taken()


def _tell(link: KeeperLink, topics: dict[str, list[CarriedTopic]]) -> None:
    """Say what is finished of each topic, and what consumers still have of it."""
    for number, name in link.topics.items():
        out: dict[str, Ranges] = {}
        for topic in topics.get(name, ()):
            for channel, told in facts.all_facts(topic).items():
                for part in in_parts(told.finished):
                    link.say(Finished(number, channel, told.generation, part))
                out.setdefault(channel, [])
            for channel, ranges in carried.in_flight(topic).items():
                out[channel] = [*out.get(channel, []), *ranges]
        for channel, ranges in out.items():
            # Only as many as fit into one frame are reported in flight; the others are given out once more.
            link.say(StillOut(number, channel, next(iter(in_parts(sorted(ranges))))))
