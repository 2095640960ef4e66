"""Handing logs over to another nsqd for good: time and threads for what `handed_over` and `for_good` note.

The taker gets a copy, as a keeper does, while deliveries go on. Then the logs are held: nothing more is
given out, what is in flight is waited for, and the last checkpoints go the same way. When the taker has all
of it on its disk the home notes that it is handed over; from that moment on it is the taker's, whatever ends.
Last the taker is told, and notes it too. Up to the home's note everything can be taken back, and is repeated
from where it was; behind it only the telling is repeated.
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
# A taker that says so need not be told: it has noted it, or the home of what a keeper hands on is there
# itself, to which the copy at the taker is one more to be met.
KNOWS: Final = frozenset((Refuse.HANDED_OVER, Refuse.HOME_IS_HERE))
# Whoever asks a taker again is answered the same.
_NEVER: Final = frozenset((Refuse.NOT_WANTED, Refuse.VERSION, Refuse.SAME_NODE_ID, Refuse.UNAUTHORIZED))
# A taker that cannot be reached for so long is none.
REACH_S: Final = 10.0


def has_heard(link: HomeLink, note: HandedOver) -> bool:
    """Whether a taker says that it has what is noted: it knows that already, has just been told, or had it.

    The same data path lets go of a copy only when others have all that is owed of it, or it is another's.
    """
    if link.taken or link.refused in KNOWS:
        return True
    keeper = link.keeper
    return link.refused == Refuse.NO_COPY and keeper is not None and keeper.identity.hex() == note.taker


class HandOverFailed(Exception):
    """It was not handed over, or nobody knows; the text is one sentence.

    With *noted* it is the taker's already, which has not said that it knows: that note is, or may be, on the
    disk. *code* is that of the taker's refusal.
    """

    def __init__(self, sentence: str, *, noted: HandedOver | None = None, code: int = 0) -> None:
        super().__init__(sentence)
        self.noted = noted
        self.code = code

    @property
    def refused(self) -> bool:
        """Whether the taker will not have it: to try again is of no use."""
        return self.code in _NEVER


class NotOurs(Exception):
    """The home of these logs is back, or nobody is owed any of them: there is nothing to hand over.

    It may be noted already that they were.
    """


class LeavingLogs(Protocol):
    """The logs of one data path that are to go: those of this node, or of another that it has for good."""

    @property
    def identity(self) -> bytes:
        """Of the data path."""

    @property
    def home(self) -> Home:
        """Whose keeper the taker is, from :meth:`appoint` on."""

    @property
    def folder(self) -> Path:
        """Where the note lies."""

    def are_ours(self) -> bool:
        """Whether they are this node's to hand over yet."""

    def size(self) -> int:
        """Bytes of files."""

    def appoint(self, taker: str) -> Linking:
        """Have a connection to the taker, with a number that is durable. Raises OSError."""

    def dismiss(self) -> None:
        """It is not the taker any more."""

    def leave(self) -> None:
        """The taker knows: it is not spoken to any more."""

    def hold(self) -> None:
        """Give out nothing more."""

    def go_on(self) -> None:
        """Give out again."""

    def in_flight(self) -> int:
        """How many messages consumers have yet, or threads are to write."""

    def send_away(self) -> None:
        """Take back what is in flight: its consumers have had their time."""

    async def note(self) -> bool:
        """Write the checkpoints of all, which are streamed; False when one could not be written."""


@dataclass(slots=True)
class HandOverProgress:
    """How far it is, for those who ask."""

    state: str = "idle"
    what: str = ""
    to: str = ""
    size: int = 0
    sent: int = 0
    problem: str = ""
    # Nobody will have it; what failed otherwise may be tried again.
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
        """*in_flight_s* is how long consumers have for what they have, *tell_s* a taker to hear of it."""
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
        """All of it; of what an earlier run has *noted* only the telling.

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
        # A taker that is about to leave itself lets those in whose copies it has, and takes no offers.
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
        """Wait until the taker has all that there is now."""
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
                if link.has_everything:
                    return link
            elif now_s - reached_s > self._reach_s:
                raise HandOverFailed(f"{self._taker}: {linking.problem}")
            if now_s - said_s > 10.0:
                said_s = now_s
                self._log.info("HAND-OVER: %s has %d of %d bytes", self._taker, progress.sent, progress.size)
            await asyncio.sleep(_LOOK_S)

    def _link(self, linking: Linking) -> HomeLink | None:
        """The connection that there is. Raises HandOverFailed when the taker will not, and NotOurs."""
        if not self._logs.are_ours():
            raise NotOurs
        if linking.refused:
            raise HandOverFailed(f"{self._taker}: {linking.problem}", code=linking.refused)
        connection = linking.connection
        return None if connection is None else connection.link

    # --- the moment ---

    async def _stopped(self, linking: Linking, link: HomeLink) -> HandedOver:
        """Nothing happens here any more, and the taker has all of it on its disk: the note that says so."""
        logs = self._logs
        await self._at_rest()
        if not await logs.note():
            raise HandOverFailed("a checkpoint cannot be written here")
        position = link.sync()
        while not (link.has_everything and link.out.synced >= position):
            self._link(linking)
            if link.closing:
                raise HandOverFailed(f"{self._taker}: {link.reason}")
            await asyncio.sleep(_LOOK_S)
        assert link.keeper is not None  # noqa: S101 - it has welcomed us
        return HandedOver(logs.identity.hex(), self._taker, link.keeper.identity.hex(), link.appointed.number)

    async def _note(self, note: HandedOver) -> None:
        """Write the note. While that is under way nothing is taken back: a thread may be at it.

        Raises OSError when there is none; and HandOverFailed, *noted*, when nobody knows whether there is.
        """
        logs = self._logs
        self._progress.state = "noting"
        try:
            await asyncio.to_thread(self._save, self._disk, logs.folder, note)
        except OSError as error:
            # It may be there all the same, and a start would believe it, whatever was published since.
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
        """Wait until consumers have answered what they have; when their time is up it is taken back."""
        until_s = self._time() + self._in_flight_s
        while self._logs.in_flight():
            if self._time() > until_s:
                self._log.warning("HAND-OVER: consumers keep messages, and are sent away")
                self._logs.send_away()
                until_s += self._in_flight_s
            await asyncio.sleep(_LOOK_S)

    # --- the telling ---

    async def _tell(self, linking: Linking, note: HandedOver) -> HandedOver:
        """Until the taker has noted it; returns the note as it is then.

        Raises HandOverFailed when it cannot be reached, NotOurs, and OSError.
        """
        told: HomeLink | None = None
        asked: HomeLink | None = None
        position = 0
        reached_s = self._time()
        while True:
            if linking.refused in KNOWS or (told is not None and has_heard(told, note)):
                return note
            if not self._logs.are_ours():
                # Their home has them again.
                raise NotOurs
            connection = linking.connection
            link = None if connection is None else connection.link
            if link is not None and link.keeper is not None and not link.closing:
                reached_s = self._time()
                ready = link.has_everything or link.state is HomeState.VISITING
                if ready and link.appointed.number != note.appointment:
                    # It has lost some of that copy, or its disk, and there is another one, which is whole.
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
