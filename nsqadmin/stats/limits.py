"""The operator's backlog limits for problems, by topic: ``pay*:depth:1000``; PURE."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from nsqadmin.stats.present import plural
from nsqadmin.stats.problems import Level, Problem
from nsqadmin.stats.sums import TopicSum


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest backlog of a channel in topics that match the pattern; None turns problems off."""

    topics: str
    depth: int | None


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
        replace(one, level=Level.WARNING) if one.topic and _of(one.topic, limits, off=True) else one
        for one in problems
    ]
    for topic in topics:
        limit = next((one for one in limits if fnmatchcase(topic.name, one.topics)), None)
        if limit is None or limit.depth is None:
            continue
        for channel in topic.channels:
            if channel.depth > limit.depth:
                text = f"{plural(channel.depth, 'message')} wait, and the limit is {limit.depth:,}"
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


def _of(topic: str, limits: Sequence[Limit], *, off: bool) -> bool:
    limit = next((one for one in limits if fnmatchcase(topic, one.topics)), None)
    return limit is not None and (limit.depth is None) is off
