"""Sending dead letters back: which still exist, where each came from, and finishing them. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from nsqd.engine.topic import Topic
from nsqd.log.encoder import Batch
from nsqd.log.headers import extension
from nsqd.log.ranges import merged, without

# The headers that are added to a dead letter begin with this.
ADDED: Final = "dead-"


class DeadLetter(NamedTuple):
    """A dead letter."""

    seq: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def origin(self) -> tuple[str, str]:
        """The topic and channel that the dead letter came from; empty when it does not say."""
        return self.headers.get("dead-topic", ""), self.headers.get("dead-channel", "")


def is_there(topic: Topic, seq: int) -> bool:
    """Whether a channel must deliver the message and does not have it in flight."""
    return any(
        seq < backlog.end and seq not in backlog.finished and not backlog.in_flight.has(seq)
        for backlog in topic.all_backlogs()
    )


def batch_of(letters: Sequence[DeadLetter]) -> Batch:
    """The messages as they were before they became dead letters."""
    kept = [
        {name: one for name, one in letter.headers.items() if not name.startswith(ADDED)}
        for letter in letters
    ]
    bodies = [letter.body for letter in letters]
    if not any(kept):
        return Batch(bodies)
    extensions = [extension(headers) for headers in kept]
    joined = [before + body for before, body in zip(extensions, bodies, strict=True)]
    return Batch(joined, has_headers=True, extension_bytes=sum(map(len, extensions)))


def fitting(origin: Topic, letters: Sequence[DeadLetter]) -> int:
    """How many of the first *letters* are within the bounds of the topic that they came from."""
    sizes = [0, *accumulate(map(len, batch_of(letters).bodies))]
    counts = range(1, len(sizes))
    return bisect_left(counts, True, key=lambda count: not origin.admits(count, sizes[count]))


def finish(topic: Topic, seqs: Iterable[int]) -> None:
    """Finish messages that were sent back, in all channels; a message in flight stays with its consumer."""
    sent_back = merged([(seq, seq + 1) for seq in seqs])
    for backlog in topic.all_backlogs():
        kept = merged(backlog.in_flight.ranges() + backlog.dead_letter_queue.ranges())
        backlog.remove(without(sent_back, kept))
    topic.changed = True
