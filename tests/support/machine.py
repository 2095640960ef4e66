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
from tests.support.engine import Node

SEGMENT_BYTES = 2000


class Machine(Node):
    """See the module."""

    def __init__(self, path: Path, node_id: int, disk: Disk | None = None) -> None:
        super().__init__()
        self.warnings: list[str] = []
        options = StorageOptions(max_segment_bytes=SEGMENT_BYTES)
        self.data = DataPath(path, options, self.warnings.append, disk, node_id=node_id)
        self.broker = Broker(MessageIds(node_id), Limits(mem_queue_size=0), self.data.create_log)
        self.data.restore(self.broker, Metadata(), self.now_ns)
        self.turn()

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
