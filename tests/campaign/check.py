"""Compares the state of a restored node with the promises to clients."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.campaign.model import After, Channel, Debt, Found, FoundChannel, FoundTopic, Model, Topic
from tests.campaign.places import DEAD, DIES

SECOND: Final = 1_000_000_000
MILLISECOND: Final = 1_000_000
# Covers one checkpoint, which is due each second, and the time that it takes here.
FORGIVEN_NS: Final = 2 * SECOND


@dataclass(frozen=True, slots=True)
class Crash:
    """The place and kind of a crash; they decide the promises after it."""

    # Number of disk steps that were done.
    k: int
    # The engine's time at that moment, and the latest time that the wall clock ever showed.
    now_ns: int
    wall_ns: int
    after: After
    # Calls have failed, so FIN and REQ, which have no answer, may not have reached the disk.
    faulty: bool = False


def violations(model: Model, found: Found, crash: Crash) -> Iterator[str]:
    """Yield one sentence for each broken promise."""
    names = {topic.name for topic in model.topics} | set(found.topics)
    for name in sorted(names):
        yield from _topic(model, name, found, crash)
    for body in sorted(found.doubles):
        if not _may_be_twice(model, body, crash):
            yield f"{body[:24]!r} has two ids"
    if found.forgotten and in_order(model):
        yield f"{min(found.forgotten)[:24]!r} would be stored once more"
    used = model.used_by(crash.k)
    if found.first_seq < used:
        yield f"a new topic begins at {found.first_seq:x}, but {used:x} was the end of what was used"


def in_order(model: Model) -> bool:
    """Say whether times of messages ascend; if the clock was set back, a time has several places."""
    for name in {topic.name for topic in model.topics}:
        # A deletion that was not promised may not have happened, so topics of one name may be the same.
        times = [one.published_ns for topic in model.incarnations(name) for one in topic.messages]
        if times != sorted(times):
            return False
    return True


def _may_be_twice(model: Model, body: bytes, crash: Crash) -> bool:
    """Say whether it was sent back, so that it may exist as the first message and as the one sent back."""
    message = model.messages.get(body)
    return message is not None and any(
        body in channel.returned and channel.returned[body].may_be(crash.k)
        for channel in message.topic.channels
    )


def _topic(model: Model, name: str, found: Found, crash: Crash) -> Iterator[str]:
    k, after = crash.k, crash.after
    if name == DEAD:
        yield from _dead(model, found, crash)
        return
    candidates = [t for t in model.incarnations(name) if t.may_exist(k, after)]
    here = found.topics.get(name)
    if here is None:
        for topic in candidates:
            if topic.must_exist(k, after):
                yield f"topic {name} is gone"
        return
    if not candidates:
        yield f"topic {name} is there, but was deleted or never made"
        return
    bodies = {body for channel in _all(here) for body in channel.bodies}
    unknown = sorted(body for body in bodies if body not in model.messages)
    if unknown:
        yield f"topic {name} has messages that no client published: {[b[:40] for b in unknown]}"
        return
    owners = {model.messages[body].topic for body in bodies}
    if len(owners) > 1:
        yield f"topic {name} has messages of {len(owners)} topics of that name"
        return
    if owners and owners.isdisjoint(candidates):
        yield f"topic {name} has messages of one that was deleted"
        return
    must = [t for t in candidates if t.must_exist(k, after)]
    if must:
        candidates = candidates[candidates.index(must[-1]) :]
    if owners.difference(candidates):
        yield f"topic {name} is an older one of that name"
        return
    # Without messages it may be any of them.
    complaints = [list(_content(topic, here, found, crash)) for topic in owners or candidates]
    yield from min(complaints, key=len)


def _all(here: FoundTopic) -> list[FoundChannel]:
    return [*here.channels.values(), *([here.backlog] if here.backlog else [])]


def _content(topic: Topic, here: FoundTopic, found: Found, crash: Crash) -> Iterator[str]:
    k, after = crash.k, crash.after
    if here.paused not in topic.pause_may_be(k, after):
        yield f"topic {topic.name} is paused: {here.paused}, without a request"
    living: dict[str, list[Channel]] = {}
    for channel in topic.channels:
        if channel.may_exist(k, after):
            living.setdefault(channel.name, []).append(channel)
        if channel.must_exist(k, after) and channel.name not in here.channels:
            yield f"channel {topic.name}/{channel.name} is gone"
    for name, there in here.channels.items():
        incarnations = living.get(name)
        if not incarnations:
            # If the first file of a new topic did not reach the disk, its channels come from nsqd.dat, which
            # may be old.
            stored_ranges = any(one.name == name and one.made.may_be(k) for one in topic.channels)
            if after is not After.KILL and not topic.made.must_be(k, after) and stored_ranges:
                continue
            yield f"channel {topic.name}/{name} is there, but was deleted or never made"
            continue
        complaints = [list(_channel(topic, channel, there, found, crash)) for channel in incarnations]
        yield from min(complaints, key=len)
    for name, there in here.channels.items():
        twice = {body for body, count in Counter(there.bodies).items() if count > 1}
        for channel in living.get(name, []):
            for former in [one for one in topic.channels if one.name == name]:
                came_back = {body for body, since in former.returned.items() if since.may_be(k)}
                twice -= came_back if former is channel else came_back & channel.doubled
        if twice:
            yield f"topic {topic.name}: channel {name} gives {min(twice)[:24]!r} twice"
        if after is After.KILL and any(topic.exclusive.get(seq, name) != name for seq in there.seqs):
            yield f"topic {topic.name}: channel {name} has what came back to another"
    if here.backlog and len(set(here.backlog.bodies)) < len(here.backlog.bodies):
        yield f"topic {topic.name} gives a message twice"
    yield from _backlog(topic, here, found, crash)
    if here.next_seq < max((found.seqs[b] + 1 for c in _all(here) for b in c.bodies), default=0):
        yield f"topic {topic.name} would use a sequence again"


def _dead_bodies(found: Found) -> set[bytes]:
    here = found.topics.get(DEAD)
    return {body for channel in _all(here) for body in channel.bodies} if here else set()


def _dead(model: Model, found: Found, crash: Crash) -> Iterator[str]:
    """Check that only messages after their last attempt are among the dead letters."""
    channels = [one for topic in model.incarnations(DIES[0]) for one in topic.channels if one.name == DIES[1]]
    for body in sorted(_dead_bodies(found)):
        if not any(channel.is_mortal(body, crash.k) for channel in channels):
            yield f"{body[:24]!r} is among the dead letters and was not tried so often"


def _channel(
    topic: Topic, channel: Channel, there: FoundChannel, found: Found, crash: Crash
) -> Iterator[str]:
    k, after = crash.k, crash.after
    label = f"channel {topic.name}/{channel.name}"
    if there.paused not in channel.pause_may_be(k, after):
        yield f"{label} is paused: {there.paused}, without a request"
    has = set(there.bodies)
    certain = channel.must_exist(k, after)
    dead = _dead_bodies(found)
    for debt in channel.debts.values():
        body = debt.message.body
        if body in has or not debt.is_pending(k) or not certain:
            continue
        if body in dead and channel.is_mortal(body, k):
            continue
        if debt.message.stored.must_be(k, after) and (debt.given is None or debt.given.must_be(k, after)):
            yield f"{label} lost {body[:24]!r}"
    # Messages that waited at a paused topic went to the channels when everything was drained.
    waited = {debt.message.body for debt in topic.backlog if debt.since < k}
    for body in there.bodies:
        debt = channel.debts.get(body)
        if debt is None:
            if body not in waited and not _a_hole_may_give(topic, channel, body, crash):
                yield f"{label} has {body[:24]!r}, which was never in its backlog"
        elif body not in channel.doubled:
            complaints = list(_should_be_there(label, debt, there, crash))
            # If the creation of the channels that had it is lost, the message goes to a later channel.
            late = debt.message.stored.asked < channel.made.asked
            if complaints and not (late and _a_hole_may_give(topic, channel, body, crash)):
                yield from complaints


def _a_hole_may_give(topic: Topic, channel: Channel, body: bytes, crash: Crash) -> bool:
    """Say whether the note by which the channel does not owe the message may have missed the disk.

    A removal that was never answered may not have taken place: the channel gets later messages. In a power
    cut later writes may reach the disk without the note that the channels with the message were created:
    then it goes to the first channel that exists.
    """
    k, after = crash.k, crash.after
    published = next(message.stored.asked for message in topic.messages if message.body == body)
    removed = channel.removed
    if published >= channel.made.asked:
        return removed is not None and removed.asked <= published and not removed.must_be(k, after)
    if after is After.KILL:
        return False
    had_it = [one for one in topic.channels if body in one.debts and one is not channel]
    return bool(had_it) and not any(one.made.must_be(k, after) for one in had_it)


def _should_be_there(label: str, debt: Debt, there: FoundChannel, crash: Crash) -> Iterator[str]:
    body = debt.message.body
    long_ago = debt.finished_ns < crash.now_ns - FORGIVEN_NS
    if debt.finished <= crash.k and long_ago and not crash.faulty:
        seconds = (crash.now_ns - debt.finished_ns) / SECOND
        yield f"{label} gives {body[:24]!r} again, finished {seconds:.1f} s before"
    if debt.dropped is not None and debt.dropped.must_be(crash.k, crash.after):
        yield f"{label} gives {body[:24]!r} again, which was emptied"
    if crash.after is After.KILL:
        yield from _due(label, debt, there.dues.get(body), crash)


def _due(label: str, debt: Debt, found_ns: int | None, crash: Crash) -> Iterator[str]:
    """Check that a deferred message is still deferred, unless it is due."""
    sure = [(position, due_ns) for position, due_ns in debt.dues if position <= crash.k]
    if not sure:
        return
    since, due_ns = sure[-1]
    if crash.faulty and (due_ns != debt.message.due_ns or (debt.dropped and debt.dropped.may_be(crash.k))):
        # A channel that was set past the message and then back has it pending immediately.
        return
    possible = {due_ns, *(later_ns for position, later_ns in debt.dues if position > crash.k)}
    if due_ns <= crash.wall_ns or any(since <= at <= crash.k for at in debt.deliveries):
        return
    if min(possible) <= crash.wall_ns and (found_ns is None or found_ns <= crash.wall_ns):
        # A request is under way, to send it immediately or at a time that has passed by now.
        return
    if found_ns is None or min(abs(found_ns - one) for one in possible) > MILLISECOND:
        yield f"{label} has {debt.message.body[:24]!r} due at {found_ns}, not {due_ns}"


def _backlog(topic: Topic, here: FoundTopic, found: Found, crash: Crash) -> Iterator[str]:
    """Check that waiting messages still wait or went to channels, and that each promised message exists."""
    k, after = crash.k, crash.after
    there_by_name = {name: set(there.bodies) for name, there in here.channels.items()}
    if here.backlog:
        there_by_name[""] = set(here.backlog.bodies)
    anywhere = set().union(*there_by_name.values()) | _dead_bodies(found)
    pending_by_topic = {debt.message.body for debt in topic.backlog if debt.is_pending(k)}
    taken = _perhaps_taken(topic, k, after)
    for message in topic.messages:
        body = message.body
        if not message.stored.must_be(k, after):
            continue
        if body in pending_by_topic:
            lacking = {name for name, there in there_by_name.items() if body not in there}
            if lacking - {channel.name for channel in topic.channels if body in channel.passed}:
                yield f"topic {topic.name} lost {body[:24]!r}, which waited"
        elif body not in taken and body not in anywhere:
            yield f"topic {topic.name} lost {body[:24]!r}: it is nowhere"


def _perhaps_taken(topic: Topic, k: int, after: After) -> set[bytes]:
    """Return the messages that a channel or the topic need not have any more."""
    taken = {d.message.body for d in topic.backlog if d.dropped is not None and d.dropped.may_be(k)}
    taken |= {message.body for message in topic.messages if message.strayed <= k}
    for channel in topic.channels:
        gone = channel.removed is not None and channel.removed.may_be(k)
        taken |= {
            body
            for body, debt in channel.debts.items()
            if gone or not debt.is_pending(k) or (debt.given is not None and not debt.given.must_be(k, after))
        }
    return taken
