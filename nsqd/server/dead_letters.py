"""Dead letters: what a channel gives up goes to a topic of its own, and is finished when it is there.

A dead letter is written and made durable before its original is finished, in whatever mode the node runs: a
power cut may take what was written a moment ago, but not a checkpoint that says it is finished.
"""

import asyncio
from functools import partial
from typing import Final

from nsqcore.service.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.channel import Channel
from nsqd.engine.deaths import Death, dead_letter_topic
from nsqd.engine.topic import Topic
from nsqd.log.cursor import Cursor
from nsqd.log.frames import FRAME_OVERHEAD, Block
from nsqd.log.gaps import CannotRead
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.turn import Turn

# Messages of one channel that are moved in one go: a few milliseconds.
_AT_ONCE: Final = 500
# What could not be moved is tried again after so long.
_PAUSE_S: Final = 1.0


class DeadLetters:
    """See the module."""

    def __init__(self, broker: Broker, turn: Turn, log: Log) -> None:
        self._broker = broker
        self._turn = turn
        self._log = log
        # Channels of which something is being written, or is tried again later.
        self._busy: set[Channel] = set()
        # Why it fails, as it was told last.
        self._failing: dict[Channel, str] = {}

    def bury(self, channel: Channel) -> None:
        """Begin to move what the channel gives up, unless that was begun."""
        if channel in self._busy or not channel.dying.waits:
            return
        deaths = channel.dying.take(_AT_ONCE)
        try:
            found = [(death, self._read(channel, death)) for death in deaths]
        except CannotRead as error:
            self._later(channel, deaths, str(error) or "cannot read")
            return
        name = dead_letter_topic(channel.topic_name, channel.name, channel.settings)
        topic = self._broker.topic(name, clock_ns())
        for _, letters in found:
            for body in letters:
                topic.publish(body, clock_ns())
        self._busy.add(channel)
        self._turn.when_certain(topic, partial(self._written, channel, topic, deaths))

    def _read(self, channel: Channel, death: Death) -> list[bytes]:
        """The bodies; what is not in the log any more is left out. Raises CannotRead."""
        bodies: list[bytes] = []
        for start, stop, found in Cursor(channel.log).scan(death.start, death.end):
            if not isinstance(found, Block):
                channel.lost_count += stop - start
                continue
            bodies += [found.frames(seq, seq + 1)[FRAME_OVERHEAD:] for seq in range(start, stop)]
        return bodies

    def _written(self, channel: Channel, topic: Topic, deaths: list[Death], reason: str) -> None:
        """The dead letters are on the disk for sure, or they are not for *reason*."""
        self._busy.discard(channel)
        if topic.deleted:
            reason = reason or "the topic was deleted"
        if reason:
            self._later(channel, deaths, f"{topic.name}: {reason}")
            return
        self._failing.pop(channel, None)
        count = 0
        for death in deaths:
            if channel.dying.done(death):
                count += death.end - death.start
                channel.finish_dead(death)
        self._log.info(
            "TOPIC(%s): %d of channel %s are in %s", channel.topic_name, count, channel.name, topic.name
        )
        self._broker.serve(channel)
        self._turn.ask()

    def _later(self, channel: Channel, deaths: list[Death], reason: str) -> None:
        """They stay owed, and are tried again."""
        self._busy.add(channel)
        for death in reversed(deaths):
            channel.dying.failed(death)
        if self._failing.get(channel) != reason:
            self._failing[channel] = reason
            self._log.error(
                "TOPIC(%s): dead letters of channel %s stay there, will try again - %s",
                channel.topic_name,
                channel.name,
                reason,
            )
        asyncio.get_running_loop().call_later(_PAUSE_S, self._again, channel)

    def _again(self, channel: Channel) -> None:
        self._busy.discard(channel)
        if channel.deleted:
            self._failing.pop(channel, None)
            return
        self._broker.serve(channel)
        self._turn.ask()
