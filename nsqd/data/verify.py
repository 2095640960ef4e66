"""``nsqd-data verify``: one line for everything that is not as it was written."""

from collections.abc import Iterator

from nsqd.data.examine import examine
from nsqd.data.opened import DataPathRefused, OpenedDataPath, OpenedTopic
from nsqd.log.disk import error_text
from nsqd.log.layout import NewerVersion
from nsqd.storage.reservation import FILE_NAME, Reservation


def findings(opened: OpenedDataPath, topic: str = "") -> Iterator[str]:
    """Everything that is found, topic after topic. Raises DataPathRefused."""
    if not topic:
        yield from _reservation(opened)
        yield from opened.warnings
    for name in opened.choose(topic):
        one = opened.topic(name)
        yield from of_topic(opened, one)
        opened.release(name)


def of_topic(opened: OpenedDataPath, one: OpenedTopic) -> Iterator[str]:
    """The warnings of recovery, and the damage that recovery does not check."""
    yield from one.warnings
    name, store = one.topic.name, one.store
    try:
        for segment in store.segments:
            yield from map(str, examine(opened.disk, segment))
    except OSError as error:
        raise DataPathRefused(f"TOPIC({name}): cannot be read: {error_text(error)}") from error
    for gap in store.segments.losses():
        count = gap.end - gap.start
        folder = store.segments.folder
        yield f"{folder}: the file with up to {count} messages from sequence {gap.start} on is gone"
    first = store.segments.end if store.segments.first_seq is None else store.segments.first_seq
    for channel, pending in one.pending_ranges().items():
        count = sum(min(end, first) - start for start, end in pending if start < first)
        if count:
            who = f"CHANNEL({channel})" if channel else f"TOPIC({name})"
            yield f"{store.segments.folder}: {count} pending messages of {who} are missing: the file is gone"


def _reservation(opened: OpenedDataPath) -> Iterator[str]:
    """The damage in the reservation. A copied data path is no damage: it continues with other ids."""
    path = opened.path / FILE_NAME
    warned: list[str] = []
    reservation = Reservation(opened.disk, opened.path, opened.broker.sequences)
    try:
        reserved, jump = reservation.load(warned.append)
    except NewerVersion as error:
        raise DataPathRefused(f"{path}: {error}") from error
    except OSError as error:
        raise DataPathRefused(f"{path}: {error_text(error)}") from error
    is_copy = bool(reserved) and not reservation.identity
    if jump and not is_copy:
        yield from warned or [f"{path}: one of its two slots is damaged; message ids will jump ahead"]
