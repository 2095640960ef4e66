"""Requests on topics and channels in the random work: create, empty, pause, delete, and create again."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nsqd.storage.topic_log import FOLDER_SUFFIX
from tests.campaign.ledger import Deed
from tests.campaign.model import NEVER, Channel, Fact, Topic
from tests.campaign.places import CHANNELS, TOPICS
from tests.support.simulated_disk import Call

if TYPE_CHECKING:
    from tests.campaign.workload import Workload

_REQUESTS: Final = (
    "topic/create",
    "topic/delete",
    "topic/empty",
    "topic/pause",
    "topic/unpause",
    "topic/unpause",
    "channel/create",
    "channel/create?start=earliest",
    "channel/create?start=earliest",
    "channel/delete",
    "channel/empty",
    "channel/pause",
    "channel/unpause",
    "channel/unpause",
)
_DEEDS: Final = {
    "topic/delete": Deed.TOPICS_DELETED,
    "topic/empty": Deed.TOPICS_EMPTIED,
    "topic/pause": Deed.TOPICS_PAUSED,
    "channel/create": Deed.CHANNELS_MADE,
    "channel/delete": Deed.CHANNELS_DELETED,
    "channel/empty": Deed.CHANNELS_EMPTIED,
    "channel/pause": Deed.CHANNELS_PAUSED,
}


class Requests:
    """Sends requests and updates the model; positions in the log matter only for channels created at one."""

    def __init__(self, work: "Workload") -> None:
        self._work = work
        # Topics for which a fault has left open whether they are paused, emptied or have a channel.
        self._in_doubt: set[str] = set()
        # Topics that are deleted as soon as threads have released their files.
        self.leaving: list[tuple[Topic, Fact, object]] = []

    def is_leaving(self, topic: Topic) -> bool:
        """Say whether a request to delete the topic is pending."""
        return any(leaving is topic for leaving, _, _ in self.leaving)

    def notice_deleted(self) -> None:
        """Remove topics from the model whose name is free or belongs to another topic now."""
        work = self._work
        for topic, fact, was in list(self.leaving):
            if work.node.broker.topics.get(topic.name) is not was:
                self.leaving.remove((topic, fact, was))
                work.model.remove(topic, fact)
                work.consumers.readers = [
                    reader for reader in work.consumers.readers if reader.topic is not topic
                ]

    async def administrate(self) -> None:
        """Send one request to /topic/* or /channel/*."""
        work = self._work
        self.request(work.rng.choice(_REQUESTS), work.rng.choice(TOPICS), work.rng.choice(CHANNELS))

    def request(self, what: str, name: str, channel_name: str) -> None:
        """Send a request; its part before the first wait runs immediately."""
        work = self._work
        what, _, query = what.partition("?")
        self.notice_deleted()
        position = work.position
        topic = work.model.topic(name)
        if topic and self.is_leaving(topic):
            return
        channel = made = topic.channel(channel_name) if topic else None
        fact = work.model.fact(position)
        placed = bool(query) and channel is None
        if placed and (name, channel_name) in work.seeks.placing:
            return
        on_channel = what.startswith("channel")
        if what == "topic/create":
            work.model.make_topic(name, fact)
        elif topic is None:
            return
        elif placed:
            work.seeks.placing[name, channel_name] = partial(work.seeks.made_there, name, channel_name, fact)
        elif what == "channel/create":
            made = work.model.make_channel(topic, channel_name, fact)
        elif on_channel and channel is None:
            return
        elif what == "topic/delete":
            self.leaving.append((topic, fact, work.node.broker.topics.get(name)))
        else:
            self._change(what, channel if on_channel and channel else topic, fact)
        work.note(f"{what} {name} {channel_name if on_channel else ''} {query}")
        if (deed := _DEEDS.get(what)) is not None and not (what == "channel/create" and made is channel):
            work.done[deed] += 1
        arguments = {"topic": name} | ({"channel": channel_name} if on_channel else {})
        if query:
            arguments |= [query.split("=")]

        def answered(ok: bool) -> None:
            if placed:
                work.seeks.placing.pop((name, channel_name), None)
            if ok:
                # In every mode this is answered only when it is durable.
                fact.answered = fact.synced = work.position
                return
            self.notice_deleted()
            # A topic that could not be deleted stays; other changes were made but are not promised.
            self.leaving = [entry for entry in self.leaving if entry[1] is not fact]
            if work.faulty:
                self._in_doubt.add(name)
            elif name not in self._in_doubt and not self._was_never_made(topic, name):
                work.break_off(f"{what} {name} failed")

        work.ask(what, arguments, answered)
        self.notice_deleted()

    def _was_never_made(self, topic: Topic | None, name: str) -> bool:
        """Say whether the model only assumes the topic, because of publishes without an answer.

        One of them was refused, which ended the connection, and the others were not looked at.
        """
        there = name in self._work.node.broker.topics
        return topic is not None and topic.made.answered == NEVER and not there

    def _change(self, what: str, owner: Topic | Channel, fact: Fact) -> None:
        work = self._work
        verb = what.partition("/")[2]
        if verb == "delete":
            work.model.remove(owner, fact)
            work.consumers.readers = [
                reader for reader in work.consumers.readers if reader.channel is not owner
            ]
        elif verb == "empty":
            work.model.empty(owner, fact)
            for reader in work.consumers.readers:
                if reader.channel is owner:
                    reader.has.clear()
        else:
            work.model.pause(owner, fact, paused=verb == "pause")

    async def recreate(self) -> None:
        """Delete a topic, create it again and publish to it, at the same moment."""
        work = self._work
        name = work.rng.choice(TOPICS)
        if work.model.topic(name) is None:
            return
        if work.rng.random() < 0.5:
            work.publish_now(name, "pub", [work.body()])
        self.request("topic/delete", name, "")
        work.done[Deed.TOPICS_REMADE] += 1
        if work.rng.random() < 0.5:
            self.request("topic/create", name, "")
        if work.rng.random() < 0.7:
            self.request("channel/create", name, work.rng.choice(CHANNELS))
        work.publish_now(name, "pub", [work.body()])

    async def recreate_channel(self) -> None:
        """Delete a channel and create it again at the same moment."""
        work = self._work
        name, channel = work.rng.choice(TOPICS), work.rng.choice(CHANNELS)
        topic = work.model.topic(name)
        if topic and topic.channel(channel):
            self.request("channel/delete", name, channel)
            self.request("channel/create", name, channel)

    def watch_compactions(self) -> None:
        """Create channels from the earliest position while a compaction begins, which is otherwise rare."""
        work = self._work
        noted = work.disk.before_call

        def watch(call: Call) -> None:
            noted(call)
            begins = call.operation == "create" and call.path.endswith(".new")
            if begins and not work.consumers.draining and work.rng.random() < work.profile.meets_earliest:
                work.loop.call_soon(self._from_the_earliest, Path(call.path).parent.name)

        work.disk.before_call = watch

    def _from_the_earliest(self, folder: str) -> None:
        name, channel_name = folder.removesuffix(FOLDER_SUFFIX), self._work.rng.choice(CHANNELS)
        self.request("channel/delete", name, channel_name)
        self.request("channel/create?start=earliest", name, channel_name)
