"""The operator's backlog limits for problems, by topic: ``pay*:depth:1000``; PURE."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import inf

from nsqadmin.stats.present import plural
from nsqadmin.stats.problems import Level, Problem
from nsqadmin.stats.sums import TopicSum


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest backlog of a channel in topics that match the pattern; None turns problems off."""

    topics: str
    depth: float | None


def parse_limit(text: str) -> Limit:
    """Read ``pay*:depth:1000`` or ``test*:off``. Raises ValueError with a sentence if it is neither."""
    topics, _, rest = text.partition(":")
    if topics and rest == "off":
        return Limit(topics, None)
    word, _, number = rest.partition(":")
    if not topics or word != "depth" or not number.isdigit():
        raise ValueError(f"{text} is neither PATTERN:depth:N nor PATTERN:off")
    return Limit(topics, int(number))


def limited(
    topics: Iterable[TopicSum], problems: Iterable[Problem], limits: Sequence[Limit]
) -> list[Problem]:
    """Return the problems in *problems* with *limits* applied to those of *topics*.

    Topics that are off have no level problem. Each backlog above its limit has.
    """
    if not limits:
        return list(problems)
    found = [
        replace(one, level=Level.WARNING) if one.topic and _limit(one.topic, limits).depth is None else one
        for one in problems
    ]
    for topic in topics:
        most = _limit(topic.name, limits).depth
        for channel in topic.channels:
            if most is not None and channel.depth > most:
                text = f"{plural(channel.depth, 'message')} wait, and the limit is {most:,.0f}"
                found.append(
                    Problem(
                        Level.PROBLEM,
                        "over limit",
                        text,
                        topic.name,
                        channel.channel_name,
                        weight=channel.depth,
                        messages=channel.depth,
                    )
                )
    return found


def _limit(topic: str, limits: Sequence[Limit]) -> Limit:
    return next((one for one in limits if fnmatchcase(topic, one.topics)), Limit(topic, inf))
