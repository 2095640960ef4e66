"""Handing logs over to another nsqd permanently: timing and threads for `handed_over` and `for_good`.

The taker gets a copy, as a keeper does, while deliveries go on. Then the logs are held: nothing more is given
out, messages in flight are waited for, and the last checkpoints are streamed. When the taker has all of it on
its disk, the home notes that the logs are handed over; from then on they belong to the taker, whatever
process ends. Last the taker is told, and notes it too. Until the home's note everything can be taken back,
and a repetition goes on where it was; after the note only the telling is repeated.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from nsqcore.process.logs import Log
from nsqd.log.disk import Disk
from nsqd.replication import handed_over
from nsqd.replication.frames import Refuse
from nsqd.replication.handed_over import HandedOver
from nsqd.replication.home import Home
from nsqd.replication.home_link import HomeLink, HomeState
from nsqd.server.replication.linking import Linking

_LOOK_S: Final = 0.02
# A taker that refuses with one of these need not be told: it has noted the hand-over, or the home of the log
# that a keeper hands on is connected there itself, and meets the taker's copy as it meets any other.
KNOWS: Final = frozenset((Refuse.HANDED_OVER, Refuse.HOME_IS_HERE))
# Refusals that a taker would repeat if it were asked again.
_NEVER: Final = frozenset((Refuse.NOT_WANTED, Refuse.VERSION, Refuse.SAME_NODE_ID, Refuse.UNAUTHORIZED))
# A taker that cannot be reached for so long is given up.
REACH_S: Final = 10.0


def has_heard(link: HomeLink, note: HandedOver) -> bool:
    """Whether a taker says that it has the noted logs: it knew that already, was just told, or had them once.

    A taker with the same data path removes its copy only when others have all that is owed of it, or when the
    copy belongs to another nsqd.
    """
    if link.taken or link.refused in KNOWS:
        return True
    keeper = link.keeper
    return link.refused == Refuse.NO_COPY and keeper is not None and keeper.identity.hex() == note.taker


class HandOverFailed(Exception):
    """The logs were not handed over, or it is unknown whether they were; the text is one sentence.

    With *noted* they may already belong to the taker, which has not confirmed it: that note is, or may be, on
    the disk. *code* is the code of the taker's refusal.
    """

    def __init__(self, sentence: str, *, noted: HandedOver | None = None, code: int = 0) -> None:
        super().__init__(sentence)
        self.noted = noted
        self.code = code

    @property
    def refused(self) -> bool:
        """Whether the taker refuses permanently, so that trying again is useless."""
        return self.code in _NEVER


class NotOurs(Exception):
    """The home of these logs is back, or nobody is owed any of them: there is nothing to hand over.

    A note that they were handed over may exist already.
    """


class LeavingLogs(Protocol):
    """The logs of one data path that are handed over: those of this node, or of another, carried here."""

    @property
    def identity(self) -> bytes:
        """The identity of the data path."""

    @property
    def home(self) -> Home:
        """The home whose keeper the taker is, from :meth:`appoint` on."""

    @property
    def folder(self) -> Path:
        """The folder of the note."""

    def are_ours(self) -> bool:
        """Whether this node may still hand them over."""

    def check(self) -> None:
        """Raise the error with which a task of these logs has ended, if one has: they end only by a fault."""

    def size(self) -> int:
        """The size of their files in bytes."""

    def appoint(self, taker: str) -> Linking:
        """Connect to the taker, with a durable number of appointment. Raises OSError."""

    def dismiss(self) -> None:
        """Give up handing over to this taker."""

    def leave(self) -> None:
        """End the connection to the taker, which has confirmed."""

    def hold(self) -> None:
        """Give out nothing more."""

    def go_on(self) -> None:
        """Give out again."""

    def in_flight(self) -> int:
        """How many messages are still in flight, plus topics that the turn has yet to write."""

    def send_away(self) -> None:
        """Close consumers' connections, so that messages in flight come back."""

    async def note(self) -> bool:
        """Write the checkpoints of all topics, which are streamed; False if one could not be written."""


@dataclass(slots=True)
class HandOverProgress:
    """The progress of a hand-over, as /drain shows it."""

    state: str = "idle"
    what: str = ""
    to: str = ""
    size: int = 0
    sent: int = 0
    problem: str = ""
    # Every taker refuses permanently; after any other failure it may be tried again.
    refused: bool = False

    def shown(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "what": self.what,
            "to": self.to,
            "bytes": self.size,
            "sent_bytes": self.sent,
            "problem": self.problem,
            "refused": self.refused,
        }


class HandingOver:
    """One set of logs on its way to one taker."""

    def __init__(
        self,
        logs: LeavingLogs,
        taker: str,
        disk: Disk,
        log: Log,
        progress: HandOverProgress,
        *,
        in_flight_s: float,
        reach_s: float = REACH_S,
        tell_s: float = REACH_S,
        save: Callable[[Disk, Path, HandedOver], None] = handed_over.save,
    ) -> None:
        """*in_flight_s* is how long consumers have for their messages, *tell_s* how long a taker may be away.

        The latter counts after the note; *reach_s* is the same before it.
        """
        self._logs = logs
        self._taker = taker
        self._disk = disk
        self._log = log
        self._progress = progress
        self._in_flight_s = in_flight_s
        self._reach_s = reach_s
        self._tell_s = tell_s
        self._save = save
        self._time = asyncio.get_running_loop().time

    async def run(self, noted: HandedOver | None = None) -> HandedOver:
        """Hand the logs over; if an earlier run has *noted* that, only tell the taker. Returns the last note.

        Raises HandOverFailed, NotOurs, and OSError when something cannot be noted here.
        """
        logs = self._logs
        linking = logs.appoint(self._taker)
        if noted is None:
            try:
                link = await self._filled(linking)
                logs.hold()
                self._progress.state = "stopping"
                try:
                    note = await self._stopped(linking, link)
                except BaseException:
                    logs.go_on()
                    raise
            except BaseException:
                logs.dismiss()
                raise
            await self._note(note)
        else:
            note = noted
        # A taker that leaves itself accepts homes whose copies it has, but no offers.
        linking.offers = None
        self._progress.state = "noted"
        self._log.info("HAND-OVER: %s has all of it, and has it for good", self._taker)
        note = await self._tell(linking, note)
        self._progress.problem = ""
        note = replace(note, confirmed=True)
        await asyncio.to_thread(self._save, self._disk, logs.folder, note)
        logs.leave()
        return note

    # --- the copy ---

    async def _filled(self, linking: Linking) -> HomeLink:
        """Wait until the taker has everything that exists now."""
        progress, logs = self._progress, self._logs
        progress.state, progress.to, progress.size = "filling", self._taker, logs.size()
        said_s = reached_s = self._time()
        while True:
            link = self._link(linking)
            now_s = self._time()
            if link is not None and link.keeper is not None:
                reached_s = now_s
                progress.sent = link.streaming.bytes_filled
                unreadable = link.unreadable()
                if unreadable:
                    raise HandOverFailed(f"{unreadable} cannot be read")
                if link.has_said_all:
                    return link
            elif now_s - reached_s > self._reach_s:
                raise HandOverFailed(f"{self._taker}: {linking.problem}")
            if now_s - said_s > 10.0:
                said_s = now_s
                self._log.info("HAND-OVER: %s has %d of %d bytes", self._taker, progress.sent, progress.size)
            await asyncio.sleep(_LOOK_S)

    def _link(self, linking: Linking) -> HomeLink | None:
        """The present connection, if any. Raises HandOverFailed when the taker refuses, and as `_check`."""
        self._check()
        if linking.refused:
            raise HandOverFailed(f"{self._taker}: {linking.problem}", code=linking.refused)
        connection = linking.connection
        return None if connection is None else connection.link

    def _check(self) -> None:
        """Raise NotOurs if their home has taken them back, and the error of a task that has ended."""
        self._logs.check()
        if not self._logs.are_ours():
            raise NotOurs

    # --- the moment ---

    async def _stopped(self, linking: Linking, link: HomeLink) -> HandedOver:
        """Wait until nothing changes here and the taker has all of it on its disk; returns the note."""
        logs = self._logs
        await self._at_rest()
        if not await logs.note():
            raise HandOverFailed("a checkpoint cannot be written here")
        position = link.sync()
        while not (link.has_said_all and link.out.synced >= position):
            self._link(linking)
            if link.closing:
                raise HandOverFailed(f"{self._taker}: {link.reason}")
            await asyncio.sleep(_LOOK_S)
        assert link.keeper is not None  # noqa: S101 - it has welcomed us
        return HandedOver(logs.identity.hex(), self._taker, link.keeper.identity.hex(), link.appointed.number)

    async def _note(self, note: HandedOver) -> None:
        """Write the note. A cancellation meanwhile takes nothing back, because a thread may be writing it.

        Raises OSError when there is no note, and HandOverFailed with *noted* when that is unknown.
        """
        logs = self._logs
        self._progress.state = "noting"
        try:
            await asyncio.to_thread(self._save, self._disk, logs.folder, note)
        except OSError as error:
            # The note may exist nevertheless; the next start would believe it, whatever was published since.
            try:
                await asyncio.to_thread(handed_over.remove, self._disk, logs.folder)
            except OSError as still:
                raise HandOverFailed(
                    f"the note in {logs.folder} that all of it is at {self._taker} could not be written,"
                    f" nor removed: {still}",
                    noted=note,
                ) from error
            logs.go_on()
            logs.dismiss()
            raise

    async def _at_rest(self) -> None:
        """Wait until no message is in flight; consumers that take longer than *in_flight_s* are sent away."""
        until_s = self._time() + self._in_flight_s
        while self._logs.in_flight():
            if self._time() > until_s:
                self._log.warning("HAND-OVER: consumers keep messages, and are sent away")
                self._logs.send_away()
                until_s += self._in_flight_s
            await asyncio.sleep(_LOOK_S)

    # --- the telling ---

    async def _tell(self, linking: Linking, note: HandedOver) -> HandedOver:
        """Tell the taker until it has noted the hand-over; returns the note, which may have changed.

        Raises HandOverFailed when it cannot be reached, NotOurs, and OSError.
        """
        told: HomeLink | None = None
        asked: HomeLink | None = None
        position = 0
        reached_s = self._time()
        while True:
            if linking.refused in KNOWS or (told is not None and has_heard(told, note)):
                return note
            self._check()
            connection = linking.connection
            link = None if connection is None else connection.link
            if link is not None and link.keeper is not None and not link.closing:
                reached_s = self._time()
                ready = link.has_said_all or link.state is HomeState.VISITING
                if ready and link.appointed.number != note.appointment:
                    # The taker lost part of that copy, or its disk, and now has another copy, which is whole.
                    if asked is not link:
                        asked, position = link, link.sync()
                    elif link.out.synced >= position:
                        who = link.keeper.identity.hex()
                        note = replace(note, taker=who, appointment=link.appointed.number)
                        await asyncio.to_thread(self._save, self._disk, self._logs.folder, note)
                elif ready and link is not told:
                    link.hand_over(note.appointment)
                    told = link
            elif self._time() - reached_s > self._tell_s:
                raise HandOverFailed(
                    f"all of it is at {self._taker}, which has not said that it knows: {linking.problem};"
                    " it gives it out as that of a node that is gone",
                    noted=note,
                )
            self._progress.problem = linking.problem
            await asyncio.sleep(_LOOK_S)
