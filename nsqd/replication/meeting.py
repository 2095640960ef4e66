"""The keeper's side of a meeting: what it says to a home that is back. No socket, no clock."""

from nsqd.engine import carried, facts
from nsqd.engine.carried_topic import CarriedTopic
from nsqd.log.ranges import Ranges
from nsqd.replication.carrier import Carrier, CarrierJob
from nsqd.replication.frames import Finished, StillOut, Told, in_parts
from nsqd.replication.keeper import KeeperLink, Keeping


class KeeperMeeting:
    """Joins the connections of a keeper to what it carries; :meth:`tick` is called a few times a second."""

    def __init__(self, keeping: Keeping, carrier: Carrier) -> None:
        self._keeping = keeping
        self._carrier = carrier
        self._now_ns = 0
        keeping.came, keeping.went, keeping.released = self._came, self._went, carrier.is_released

    def _came(self, link: KeeperLink) -> None:
        assert link.hello is not None  # noqa: S101 - it was welcomed
        identity = link.hello.identity
        self._carrier.came(identity, self._now_ns)
        if self._carrier.is_released(identity):
            # Nothing was given out here.
            link.say(Told())

    def _went(self, link: KeeperLink, for_good: bool) -> None:
        assert link.hello is not None  # noqa: S101 - it was welcomed
        self._carrier.went(link.hello.identity, self._now_ns, for_good=for_good)

    def tick(self, now_ns: int) -> list[CarrierJob]:
        """What is to be done now, by any thread; each is handed to :meth:`ended`."""
        self._now_ns = now_ns
        links = self._keeping.links
        hear = {identity for identity, link in links.items() if link.waits_for_release}
        jobs = self._carrier.tick(now_ns, hear)
        for identity in hear:
            topics = self._carrier.to_tell(identity, now_ns)
            if topics is not None:
                _tell(links[identity], topics)
                links[identity].say(Told())
        return jobs

    def ended(self, job: CarrierJob, error: Exception | None, now_ns: int) -> None:
        """A job has run, or failed."""
        identity = job.copy.identity
        self._carrier.ended(job, error, now_ns)
        link = self._keeping.links.get(identity)
        if link is not None and link.waits_for_release and self._carrier.is_released(identity):
            link.released()


def _tell(link: KeeperLink, topics: dict[str, list[CarriedTopic]]) -> None:
    """Say what is finished of each topic, and what consumers have of it yet."""
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
            # So many are not in flight: what a frame cannot say is given out once more.
            link.say(StillOut(number, channel, next(iter(in_parts(sorted(ranges))))))
