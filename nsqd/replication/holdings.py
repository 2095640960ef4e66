"""What another node has told of a log: for each topic what can be read there, and what is finished. Pure."""

from dataclasses import dataclass, field

from nsqd.engine.facts import ChannelFacts
from nsqd.log.ranges import Ranges, merged
from nsqd.replication.frames import Finished


@dataclass(slots=True)
class Holdings:
    """See the module."""

    held: dict[str, Ranges] = field(default_factory=dict)
    finished: dict[str, dict[str, ChannelFacts]] = field(default_factory=dict)
    serial: int = 0


def add_finished(holdings: Holdings, name: str, frame: Finished) -> None:
    """Add what is finished on a channel; facts of another generation replace those before."""
    channels = holdings.finished.setdefault(name, {})
    known = channels.get(frame.channel)
    before = [] if known is None or known.generation != frame.generation else known.finished
    channels[frame.channel] = ChannelFacts(frame.generation, merged([*before, *frame.ranges]))
