"""What clients of a site were promised, and which promises are still open."""

from dataclasses import dataclass, field


@dataclass
class Promise:
    """A message that was answered with OK, with its place and the channels that were owed it then."""

    topic: str
    home: bytes
    channels: set[str]
    # No channel existed yet, so the first one gets the message.
    free: bool


@dataclass
class Promises:
    """The promises of one history."""

    made: dict[bytes, Promise] = field(default_factory=dict)
    # Messages that are published and not answered yet.
    pending: dict[bytes, Promise] = field(default_factory=dict)
    done: dict[tuple[str, str], set[bytes]] = field(default_factory=dict)
    refused: int = 0
    again: int = 0
    carried: int = 0
    learned: int = 0
    waived: int = 0

    def finished(self, topic: str, channel: str, body: bytes, *, carried: bool) -> None:
        """Note that a consumer has finished a message."""
        done = self.done.setdefault((topic, channel), set())
        self.again += body in done
        self.carried += carried
        done.add(body)

    def waive(self, topic: str, homes: set[bytes], channel: str | None) -> None:
        """Drop promises of messages that these homes accepted: somebody deleted, emptied or skipped them.

        Without a channel the whole topic is meant.
        """
        for promises in (self.made, self.pending):
            for body, one in list(promises.items()):
                if one.topic != topic or one.home not in homes:
                    continue
                if channel is None or one.free or one.channels == {channel}:
                    self.waived += 1
                    del promises[body]
                else:
                    one.channels.discard(channel)

    def waive_unclaimed(self, topic: str, homes: set[bytes]) -> None:
        """Drop promises of messages that wait for a first channel."""
        for promises in (self.made, self.pending):
            for body in [body for body, one in promises.items() if one.topic == topic and one.home in homes]:
                if promises[body].free:
                    self.waived += 1
                    del promises[body]

    def answered(self, body: bytes) -> None:
        """Note that a publisher got OK."""
        promise = self.pending.pop(body, None)
        if promise is not None:
            self.made[body] = promise

    def settled(self, body: bytes) -> bool:
        one = self.made[body]
        if one.free:
            return any(body in done for (name, _), done in self.done.items() if name == one.topic)
        return all(body in self.done.get((one.topic, channel), ()) for channel in one.channels)

    def open(self) -> list[bytes]:
        return [body for body in self.made if not self.settled(body)]

    def lost(self) -> list[str]:
        """Return the promised messages that never came."""
        found = []
        for body in self.open():
            one = self.made[body]
            if one.channels or any(name == one.topic for name, _ in self.done):
                missing = [
                    name for name in sorted(one.channels) if body not in self.done.get((one.topic, name), ())
                ]
                found.append(f"{body.decode()} of {one.topic} was never given to {missing or 'anybody'}")
        return found
