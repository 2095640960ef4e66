"""The logs that were handed over to this node permanently: which these are, and when their copies may go.

No socket, no clock; what waits for the disk is a job for any thread.
"""

from dataclasses import dataclass
from typing import Final

from nsqd.engine import carried, facts
from nsqd.log.disk import Disk
from nsqd.replication import for_good
from nsqd.replication.carried_copy import CarriedCopy
from nsqd.replication.copies import Copies
from nsqd.replication.for_good import ForGood
from nsqd.replication.frames import Hello
from nsqd.replication.keeper import KeeperLink

# How often to look whether a log is done with.
LOOK_EVERY_NS: Final = 2_000_000_000


@dataclass(slots=True)
class NoteForGood:
    """Make it durable that a home is gone permanently; then its keeper tells *link*."""

    copies: Copies
    identity: bytes
    note: ForGood
    link: KeeperLink

    def run(self, disk: Disk) -> None:
        """Raises OSError."""
        for_good.save(disk, self.copies.folder_of(self.identity), self.note)


class Inherited:
    """See the module."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._notes: dict[bytes, ForGood] = {}
        self._looked_ns = 0

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._notes

    def look(self, identity: bytes) -> None:
        """Find the note on a home, if there is one. Raises OSError."""
        found = self._copies.for_good(identity)
        if found is not None:
            self._notes[identity] = found

    def noted(self, job: NoteForGood) -> None:
        """The note is durable now."""
        self._notes[job.identity] = job.note

    def by_keeper(self, identity: bytes, hello: Hello) -> bool:
        """Whether a log is handed over so that its home may come back for it.

        A home does not come back for a log that it has itself handed over once, whoever brings more of the
        log.
        """
        before = self._notes.get(identity)
        return hello.stands_in and (before is None or before.by_keeper)

    def came_back(self, identity: bytes) -> None:
        """The home is here whose log a keeper had given away: it owns the log again. Raises OSError."""
        note = self._notes.get(identity)
        if note is not None and note.by_keeper:
            self._copies.forget_for_good(identity)
            del self._notes[identity]

    def forget(self, identity: bytes) -> None:
        """Forget a log that is another node's now."""
        self._notes.pop(identity, None)

    def not_back(self, hello: Hello) -> str:
        """Why a home, or a keeper that speaks for it, is not accepted; empty when it may come.

        A keeper may bring a copy where none is left: it has missed that nobody is owed any of the log, and
        would have to keep it for ever. A keeper that comes with the noted appointment has not heard that it
        was noted. Raises OSError.
        """
        identity = hello.identity
        note = self._notes.get(identity)
        if note is None:
            return ""
        if not hello.stands_in:
            may_come = note.by_keeper
        else:
            others = set(self._copies.appointments(identity)) - {hello.appointment}
            may_come = not others and hello.appointment not in (0, note.appointment)
        if may_come:
            return ""
        return f"the messages of {identity.hex()} were handed over to this nsqd, which has them for good"

    def may_look(self, now_ns: int) -> bool:
        """Whether it is time to look which logs are done with."""
        if now_ns - self._looked_ns < LOOK_EVERY_NS:
            return False
        self._looked_ns = now_ns
        return True


def is_done_with(copy: CarriedCopy) -> bool:
    """Whether nobody is owed anything of it, has any of it in flight, or may go back to it."""
    if copy.troubles:
        return False
    for topic in copy.topics.values():
        if topic.settings.retains or carried.in_flight(topic) or facts.owed_by_any(topic):
            return False
    return True
