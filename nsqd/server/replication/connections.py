"""Connections of a home to those whom it has appointed, and to those of former days: kept up, and looked at.

The home is this node (`our_keepers`), or one that is gone and for which this node stands in (`standing_in`).
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from nsqcore.process.logs import Log
from nsqd.log.disk import Disk
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.choosing import Appointed, KeeperPatience
from nsqd.replication.frames import Fellow, Refuse
from nsqd.replication.home import Home
from nsqd.replication.home_link import HomeLink
from nsqd.server.replication.linking import Linking

# A keeper that says so is asked again later, and another one meanwhile.
_WILL_NOT: Final = frozenset(
    (
        Refuse.NOT_WANTED,
        Refuse.VERSION,
        Refuse.SAME_NODE_ID,
        Refuse.UNAUTHORIZED,
        Refuse.DISK,
        Refuse.HANDED_OVER,
    )
)


@dataclass(slots=True)
class KeeperConnection:
    """A keeper, and the task that keeps up its connection."""

    linking: Linking
    task: asyncio.Task[None] = field(repr=False)
    # Since when its word counts for all topics, in seconds since 1970; 0 while it does not.
    linked_s: float = 0.0

    @property
    def link(self) -> HomeLink | None:
        """The connection that there is just now."""
        connection = self.linking.connection
        return None if connection is None else connection.link

    def look(self) -> None:
        """Note whether it is linked."""
        link = self.link
        up = link is not None and link.is_streamed_to and all(one.linked for one in link.streams())
        self.linked_s = (self.linked_s or time.time()) if up else 0.0


class KeeperConnections:
    """See the module."""

    def __init__(
        self,
        home: Home,
        file: AppointmentsFile,
        disk: Disk,
        log: Log,
        tls: ssl.SSLContext | None,
        *,
        readers: int,
        connect: Callable[..., Linking] = Linking,
    ) -> None:
        """*file* is loaded; *connect* makes a connection, with the arguments of `Linking`."""
        self.home = home
        self.file = file
        self._disk = disk
        self._log = log
        self._tls = tls
        self._connect = connect
        self._pool = ThreadPoolExecutor(readers, "fill")
        self._known: dict[str, KeeperConnection] = {}
        # Others are known than before: found out by a connection, which cannot end while it is heard.
        self._changed = False
        home.gone = self._gone

    def __iter__(self) -> Iterator[KeeperConnection]:
        """Those to keepers of today."""
        return (one for one in self._known.values() if not one.linking.visit)

    def of(self, address: str) -> KeeperConnection | None:
        return self._known.get(address)

    # --- who they are ---

    def fellows(self) -> tuple[Fellow, ...]:
        """All keepers that may have copies."""
        known = self.file.appointments
        return tuple(Fellow(one.number, one.address) for one in (*known.current, *known.former))

    def keep_up(self, _current: object = None) -> None:
        """Have a connection to each that is appointed, and to those of former days."""
        known = self.file.appointments
        today = {one.address: one for one in known.current}
        former = {one.address: one for one in known.former if one.address not in today}
        self.home.addresses = set(today)
        for address, one in list(self._known.items()):
            if address not in (former if one.linking.visit else today):
                self.leave(address)
        for address, appointed in (today | former).items():
            if address in self._known:
                continue
            linking = self._connect(
                *(self.home, appointed, self._log, self._pool, self._disk),
                tls=self._tls,
                heard=self._met,
                visit=address in former,
            )
            task = asyncio.create_task(linking.run(), name=f"keeper {address}")
            self._known[address] = KeeperConnection(linking, task)
        self.home.say_who_keeps()

    def leave(self, address: str) -> None:
        """Speak to that one no more."""
        one = self._known.pop(address, None)
        if one is not None:
            one.task.cancel()

    def _met(self, appointed: Appointed, identity: str) -> None:
        """A keeper has said who it is."""
        self.file.appointments.met(appointed.number, identity)
        self.save()

    def _gone(self, link: HomeLink, number: int) -> None:
        """A keeper has no copies of former days up to that appointment."""
        if self.file.appointments.forget_up_to(link.appointed.address, number):
            self.others_are_known()

    def others_are_known(self) -> None:
        """Who is appointed has changed. Raises nothing."""
        self.save()
        self._changed = True

    def save(self) -> None:
        """What cannot be noted is known for this life: a keeper is asked once more in the next one."""
        try:
            self.file.save()
        except OSError as error:
            self._log.warning("failed to note which keepers there are - %s", error)

    # --- time ---

    def tick(self) -> None:
        """Some twenty times a second: who has answered since, and who is known."""
        if self._changed:
            self._changed = False
            self.keep_up()
        for one in self._known.values():
            one.linking.met()
            one.look()

    def note_patience(self, patience: KeeperPatience, now: int) -> bool:
        """Note who is there and who will not have us; whether another is to be looked for at once."""
        news = False
        for address, one in self._known.items():
            linking = one.linking
            if linking.visit:
                continue
            link = one.link
            if link is not None and link.keeper_leaves:
                news = patience.refused(address, now) or news
                continue
            if not linking.problem:
                patience.linked(address)
                continue
            patience.away(address, now)
            if linking.refused in _WILL_NOT:
                news = patience.refused(address, now) or news
        return news

    def flush(self) -> None:
        """Send what was said, to each keeper in one write."""
        for one in self._known.values():
            connection = one.linking.connection
            if connection is not None:
                connection.go_on()

    async def close(self) -> None:
        """After the last publisher was answered."""
        tasks = [one.task for one in self._known.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self._pool.shutdown)
