"""What follows from the end of a job: a copy that was opened, promoted or dropped, or a failure."""

from collections.abc import Callable, Iterable
from typing import Final

from nsqd.engine import facts, promoted
from nsqd.engine.replica_topic import ReplicaTopic
from nsqd.engine.topic import Topic
from nsqd.log.disk import words_of
from nsqd.log.ranges import Ranges
from nsqd.replication.holders import Holders
from nsqd.replication.jobs import Jobs
from nsqd.replication.local_copy import (
    CopyJob,
    DeleteTopicOfCopy,
    DropCopy,
    LocalCopy,
    NodeJob,
    OpenCopy,
    PromoteCopy,
    SaveNode,
    SaveRecord,
)
from nsqd.replication.log_copies import LogCopies, Logs
from nsqd.replication.log_stream import ReplicaSettings
from nsqd.replication.node_state import NodeState
from nsqd.replication.primary import Primary
from nsqd.storage.data_path import extents_of
from nsqd.storage.topic_log import store_of

_S: Final = 1_000_000_000
_RETRY_NS: Final = 5 * _S
# Topics that cannot be read are tried again after so long.
_READ_AGAIN_NS: Final = 60 * _S


class JobResults:
    """See the module."""

    def __init__(self, node: NodeState, holders: Holders, jobs: Jobs, logs: Logs) -> None:
        self._node = node
        self._holders = holders
        self._jobs = jobs
        self._logs = logs

    def ended(self, job: NodeJob, error: Exception | None, now_ns: int) -> None:
        """A job has run, or failed."""
        if isinstance(job, SaveNode):
            if self._holders.saved(job, error):
                self._logs[self._node.identity].state.changed()
            return
        copy = job.copy
        log = self._logs[copy.origin]
        if not isinstance(job, SaveRecord):
            copy.is_busy = False
        if error is None:
            copy.problems.pop("", None)
            self._succeeded(log, job, now_ns)
        else:
            self._failed(job, error, now_ns)
        log.state.changed()
        log.tick(now_ns)

    def _succeeded(self, log: LogCopies, job: CopyJob, now_ns: int) -> None:
        copy = job.copy
        if isinstance(job, OpenCopy):
            self._opened(log, job, now_ns)
        elif isinstance(job, PromoteCopy):
            self._promoted(log, copy, now_ns, failover=job.failover)
        elif isinstance(job, DeleteTopicOfCopy):
            job.link.unacknowledged.remove(job.position)
            self._node.copies.forget(copy.stored, self._node.copies.folder(copy.stored, job.name))
        elif isinstance(job, DropCopy):
            log.remove(copy)
            copy.topics = {}
            self._node.info(f"REPLICATION: the copy {copy.number} of {copy.origin.hex()[:8]} was dropped")

    def _failed(self, job: CopyJob, error: Exception, now_ns: int) -> None:
        copy = job.copy
        reason = words_of(error) if isinstance(error, OSError) else str(error) or type(error).__name__
        copy.retry_ns = now_ns + _RETRY_NS
        if isinstance(job, DeleteTopicOfCopy):
            job.link.unacknowledged.remove(job.position)
            job.link.end(f"a deleted topic is still here: {reason}")
        if isinstance(job, DropCopy):
            # Its topics were taken away from the broker.
            copy.topics, copy.is_open = {}, False
        if copy.problems.get("") != reason:
            copy.problems[""] = reason
            self._node.warn(
                f"REPLICATION: the copy {copy.number} of {copy.origin.hex()[:8]} failed - {reason}"
            )

    def _opened(self, log: LogCopies, job: OpenCopy, now_ns: int) -> None:
        copy = job.copy
        for name, reason in job.failed.items():
            if copy.problems.get(name) != reason:
                self._node.warn(
                    f"REPLICATION: topic {name} of {copy.origin.hex()[:8]} cannot be read - {reason}"
                )
        copy.problems = dict(job.failed)
        copy.read_again_ns = now_ns + _READ_AGAIN_NS
        copy.topics.update(job.found)
        copy.is_open = True
        for topic in job.found.values():
            # What was recovered is on the disk.
            topic.take_changed()
            self._add_topic(log, copy, topic)
        log.opened(copy)
        if copy.is_owner:
            self._deliver(log, copy, job.found.values(), now_ns)

    def _promoted(self, log: LogCopies, copy: LocalCopy, now_ns: int, *, failover: bool) -> None:
        copy.take_over_epoch = 0
        for name, topic in copy.topics.items():
            store = store_of(topic)
            if store is not None and store.segments.read_only:
                store.move_to(self._node.copies.folder(copy.stored, name).path)
        log.state_changed(copy)
        self._node.info(
            f"REPLICATION: took over {copy.origin.hex()[:8]}, epoch {copy.epoch}, {len(copy.topics)} topics"
        )
        self._deliver(log, copy, copy.topics.values(), now_ns, failover=failover)

    def _deliver(
        self,
        log: LogCopies,
        copy: LocalCopy,
        topics: Iterable[Topic],
        now_ns: int,
        *,
        failover: bool = False,
    ) -> None:
        """Begin to deliver from a promoted copy; old messages wait until the holders were asked."""
        if copy not in log.state.primaries:
            make_primary(self._node.settings, log, copy)
        log.ask(copy, now_ns, failover=failover)
        for topic in topics:
            if isinstance(topic, ReplicaTopic):
                promoted.attach(self._node.broker, topic, now_ns)
                self._add_topic(log, copy, topic)
        self._node.wants_turn = True

    def _add_topic(self, log: LogCopies, copy: LocalCopy, topic: Topic) -> None:
        store = store_of(topic)
        if store is None:
            return
        self._jobs.copy_of[store] = (copy, topic)
        primary = log.state.primaries.get(copy)
        if primary is not None:
            primary.add(store, topic.name)


def make_primary(
    settings: ReplicaSettings,
    log: LogCopies,
    copy: LocalCopy,
    replicas_of: Callable[[str], int] | None = None,
) -> None:
    """Let an owner stream; *replicas_of* gives the number of replicas of a topic, if topics differ."""

    def unneeded(name: str) -> Ranges:
        topic = copy.topics.get(name)
        return [] if topic is None else facts.settled(topic, extents_of(topic))

    primary = log.state.primaries[copy] = Primary(
        settings,
        copy.origin,
        replicas_of,
        unneeded=unneeded,
        may_resume=lambda stream: log.may_resume(copy, stream.peer),
    )
    primary.copy = copy.number
