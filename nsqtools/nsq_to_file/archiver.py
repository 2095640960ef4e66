"""Runs a writer for each topic as topics appear, until ``nsq_to_file`` is stopped."""

import asyncio
import signal

from nsqclient import Consumer
from nsqclient.wire.durations import SECOND
from nsqcore.cluster.http import ClusterHttp
from nsqcore.process.lifecycle import handle_signal
from nsqcore.process.logs import Log
from nsqtools.consumers import start
from nsqtools.nsq_to_file.archive import Archive, Clocks, TopicLog
from nsqtools.nsq_to_file.options import ToFileOptions
from nsqtools.nsq_to_file.topic_writer import TopicWriter
from nsqtools.nsq_to_file.topics import rounds
from nsqtools.process import Failed


class Archiver:
    """The writers of all topics."""

    def __init__(self, options: ToFileOptions, log: Log) -> None:
        self._options = options
        self._log = log
        self._writers: dict[str, tuple[TopicWriter, Consumer]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Archive until ``stop`` is set; messages finished by then are in the files."""
        layout = self._options.layout
        try:
            on_different_devices = layout.on_different_devices
        except OSError as error:  # a folder above them may not be readable
            raise Failed(str(error)) from error
        if on_different_devices:
            raise Failed(
                f"--work-dir {layout.work_dir} and --output-dir {layout.output_dir} are on different devices:"
                " no file could be moved there when it is finished"
            )
        handle_signal(signal.SIGHUP, self._hang_up)
        failed: list[BaseException] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                finding = tasks.create_task(self._archive_topics(tasks))
                await stop.wait()
                finding.cancel()
                await asyncio.gather(*(writer.stop(consumer) for writer, consumer in self._writers.values()))
                for task in self._tasks:
                    task.cancel()
        except* Failed as group:
            failed.extend(group.exceptions)
        finally:
            await asyncio.gather(*(consumer.close(0) for _, consumer in self._writers.values()))
        if failed:
            raise failed[0]

    def _hang_up(self) -> None:
        for writer, _ in self._writers.values():
            writer.hang_up()

    async def _archive_topics(self, tasks: asyncio.TaskGroup) -> None:
        async with ClusterHttp(
            connect_timeout=self._options.http_client_connect_timeout / SECOND,
            request_timeout=self._options.http_client_request_timeout / SECOND,
        ) as http:
            async for topics in rounds(self._options, http, self._log):
                for topic in topics:
                    if topic not in self._writers:
                        await self._start_writer(topic, tasks)

    async def _start_writer(self, topic: str, tasks: asyncio.TaskGroup) -> None:
        options = self._options
        log = TopicLog(self._log, topic, options.channel)
        archive = Archive(options.layout, options.naming.of(topic), Clocks(), log)
        try:
            # Before messages are read, because with large files it takes longer than a message may wait.
            await asyncio.to_thread(archive.recover)
        except OSError as error:
            raise Failed(f"[{topic}/{options.channel}] {error}") from error
        writer = TopicWriter(archive, options.sync_interval / SECOND, options.max_in_flight, log)
        consumer = options.consumer(topic, options.channel, writer.handle, auto_answer=False)
        await start(consumer)
        self._writers[topic] = writer, consumer
        self._tasks.append(tasks.create_task(writer.run(consumer), name=f"writer of {topic}"))
