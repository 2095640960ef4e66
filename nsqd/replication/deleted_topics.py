"""Deleted topics: those of the own log, which each holder must acknowledge, and those of the copies here."""

from collections.abc import Iterable

from nsqd.engine.topic import Topic
from nsqd.replication.channel_states import delete_below
from nsqd.replication.frames import DeleteTopic
from nsqd.replication.jobs import Jobs
from nsqd.replication.link import PeerLink
from nsqd.replication.local_copy import LocalCopy
from nsqd.replication.log_state import Logs
from nsqd.replication.node_state import NodeState


class DeletedTopics:
    """See the module."""

    def __init__(self, node: NodeState, jobs: Jobs, logs: Logs) -> None:
        self._node = node
        self._jobs = jobs
        self._logs = logs
        # Topics of copies whose folders are to be renamed.
        self._waiting: list[tuple[LocalCopy, DeleteTopic, PeerLink, int]] = []

    # --- the own log ---

    def deleted(self, name: str, below: int) -> None:
        """Messages of an own topic were deleted: every holder gets a frame, now or when it connects."""
        self._logs[self._node.identity].topic_removed(self._node.own_copy, name)
        holders = self._node.own_copy.holders
        if not holders:
            return
        self._node.change_record(self._node.record.with_deletion(name, below))
        for link in self._node.links:
            if link.is_up and link.connector and link.peer in holders:
                link.delete_topic(DeleteTopic(self._node.identity, name, below))

    def send(self, link: PeerLink) -> None:
        """Send a holder the deletions that it has not acknowledged."""
        for one in self._node.record.deletions:
            if link.peer in one.unacknowledged:
                link.delete_topic(DeleteTopic(self._node.identity, one.topic, one.below))

    def acknowledged(self, peer: bytes, frame: DeleteTopic) -> None:
        """A holder has removed a deleted topic."""
        self._node.change_record(self._node.record.with_acknowledged(peer, frame.name, frame.below))

    # --- copies here ---

    def promoted(self, topics: Iterable[Topic]) -> None:
        """These topics of promoted copies were deleted with the own topic: their checkpoints record it."""
        self._node.to_checkpoint.update(dict.fromkeys(topics))

    def take(self, link: PeerLink, frame: DeleteTopic, position: int) -> None:
        """The origin has deleted a topic; its frame begins at this position of the connection."""
        log = self._logs.get(frame.origin)
        for copy in [] if log is None else log.copies:
            if not (copy.is_origin or copy.is_streamed) and self._remove(copy, frame):
                link.unacknowledged.append(position)
                self._waiting.append((copy, frame, link, position))

    def _remove(self, copy: LocalCopy, frame: DeleteTopic) -> bool:
        """Close a deleted topic of a copy; False if it has later messages, and stays."""
        topic = copy.topics.get(frame.name)
        if topic is None:
            return True
        if not delete_below(self._node.broker, topic, frame.below):
            self._node.to_checkpoint[topic] = None
            return False
        del copy.topics[frame.name]
        self._jobs.close_topic(topic)
        self._logs[copy.origin].topic_removed(copy, frame.name)
        return True

    def begin_jobs(self) -> None:
        """Begin the jobs that rename folders of deleted topics, one at a time of each copy.

        Called once a second: a stream that begins right behind the frame finds the copy idle.
        """
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            copy, frame, link, position = one
            if copy.is_gone or copy.is_streamed:
                # The stream deletes it.
                link.unacknowledged.remove(position)
            elif copy.is_busy or copy.is_negotiating or copy.running_jobs:
                self._waiting.append(one)
            elif self._remove(copy, frame):
                # A job that ran when the frame came may have opened the topic.
                self._jobs.delete_topic(self._logs[copy.origin], copy, frame, link, position)
            else:
                link.unacknowledged.remove(position)
