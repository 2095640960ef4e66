"""A broker on a data path, with the server's steps between turns; after a crash, tests make a new one."""

from pathlib import Path

from nsqd.engine.broker import Broker
from nsqd.engine.channel import Consumer
from nsqd.engine.limits import Limits
from nsqd.engine.topic import Topic
from nsqd.log.disk import Disk
from nsqd.log.ids import MessageIds
from nsqd.storage.data_path import DataPath, StorageOptions
from nsqd.storage.metadata import Metadata
from nsqd.storage.topic_log import store_of
from tests.support.engine import SECOND, Node

SEGMENT_BYTES = 2000


class Machine(Node):
    """See the module; :meth:`crash` forgets everything but the disk."""

    def __init__(
        self,
        path: Path,
        node_id: int = 1,
        disk: Disk | None = None,
        *,
        segment: int = SEGMENT_BYTES,
        metadata: Metadata | None = None,
    ) -> None:
        super().__init__()
        self.path = path
        self.warnings: list[str] = []
        self._node_id, self._disk = node_id, disk
        self._options = StorageOptions(max_segment_bytes=segment)
        self.start(metadata)

    def start(self, metadata: Metadata | None = None) -> None:
        self.data = DataPath(
            self.path, self._options, self.warnings.append, self._disk, node_id=self._node_id
        )
        self.broker = Broker(MessageIds(self._node_id), Limits(mem_queue_size=0), self.data.create_log)
        self.data.restore(self.broker, metadata or Metadata(), self.now_ns)
        self.turn()

    def close(self) -> None:
        for topic in self.broker.topics.values():
            store = store_of(topic)
            if store is not None:
                store.appender.close()

    def crash(self, seconds: int = 1, metadata: Metadata | None = None) -> None:
        self.close()
        self.now_ns += seconds * SECOND
        self.start(metadata)

    def consume(self, count: int, name: str = "c") -> tuple[Consumer, list[tuple[int, bytes]]]:
        """Deliver *count* messages to a new consumer; returns it and (attempts, body) of each message."""
        self.advance(0)
        consumer, outlet = self.subscribe(self.channel(name), count)
        return consumer, [(attempts, body) for _, attempts, body in outlet.taken()]

    def turn(self) -> None:
        for topic in list(self.broker.dirty):
            store = store_of(topic)
            blocks, noted = topic.staged(), topic.staged_notes()
            if store is not None and (blocks or noted):
                if blocks:
                    self.data.reservation.extend(blocks[-1].next)
                store.appender.append(blocks, noted, topic.log.next_seq)
        super().turn()

    def checkpoint(self, topic: Topic) -> None:
        """Write a checkpoint, as the server does once a second."""
        store = store_of(topic)
        assert store is not None
        store.appender.make_folder()
        job = store.checkpoints.start_job(topic, store.checkpoint_position(topic.log.next_seq))
        job.run(self.data.disk)
        store.checkpoints.end(job)

    def sync(self, topic: Topic) -> None:
        store = store_of(topic)
        job = None if store is None else store.appender.begin_sync()
        if store is not None and job is not None:
            job.run(self.data.disk)
            store.appender.end_sync(job, None)

    def answer(self, consumer: Consumer, word: bytes, message_id: bytes, *rest: bytes) -> bytes:
        """Send a client's command and return the reply."""
        session, _ = self.session()
        session.receive(b"  V2", self.now_ns)
        session.consumer, session.state = consumer, 3
        session.receive(b" ".join((word, message_id, *rest)) + b"\n", self.now_ns)
        self.turn()
        return session.take_replies()
