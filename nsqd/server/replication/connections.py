"""Connections of a home to its present and former keepers: they are kept up and watched.

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
from nsqd.replication.frames import Refuse
from nsqd.replication.home import Home
from nsqd.replication.home_link import HomeLink
from nsqd.server.replication.linking import Linking

# A keeper that refuses with one of these is asked again later; meanwhile another keeper is looked for.
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
    """The connection to one keeper, and the task that keeps it up."""

    linking: Linking
    task: asyncio.Task[None] = field(repr=False)
    # Since when it is linked for all topics, in seconds since 1970; 0 while it is not.
    linked_s: float = 0.0

    @property
    def link(self) -> HomeLink | None:
        """The present connection; None while there is none."""
        connection = self.linking.connection
        return None if connection is None else connection.link

    def look(self) -> None:
        """Note whether it is linked for all topics."""
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
        """*file* is already loaded; *connect* takes the arguments of `Linking`."""
        self.home = home
        self.file = file
        self._disk = disk
        self._log = log
        self._tls = tls
        self._connect = connect
        self._pool = ThreadPoolExecutor(readers, "fill")
        self._known: dict[str, KeeperConnection] = {}
        # The known keepers have changed. A connection reports that while it is read from, when it cannot be
        # ended, so the next tick acts on it.
        self._changed = False
        home.gone = self._gone

    def __iter__(self) -> Iterator[KeeperConnection]:
        """The connections to present keepers."""
        return (one for one in self._known.values() if not one.linking.visit)

    def of(self, address: str) -> KeeperConnection | None:
        return self._known.get(address)

    # --- who they are ---

    def keep_up(self, _current: object = None) -> None:
        """Keep a connection to each present and former keeper, and end those to others."""
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
        """End the connection to the keeper at *address*."""
        one = self._known.pop(address, None)
        if one is not None:
            one.task.cancel()

    def _met(self, appointed: Appointed, identity: str) -> None:
        """Note the identity that a keeper has told."""
        self.file.appointments.met(appointed.number, identity)
        self.save()

    def _gone(self, keeper: Appointed, number: int) -> None:
        """Note that a keeper has no older copies up to appointment *number*."""
        if self.file.appointments.forget_up_to(keeper.address, number):
            self.others_are_known()

    def others_are_known(self) -> None:
        """Note that the known keepers have changed; a failure to save that is only logged."""
        self.save()
        self._changed = True

    def save(self) -> None:
        """Save the appointments. If that fails, a keeper is asked once more after the next start."""
        try:
            self.file.save()
        except OSError as error:
            self._log.warning("failed to note which keepers there are - %s", error)

    # --- time ---

    def tick(self) -> None:
        """Note which keepers have answered, and adjust connections; called some twenty times a second."""
        if self._changed:
            self._changed = False
            self.keep_up()
        for one in self._known.values():
            one.linking.met()
            one.look()

    def note_patience(self, patience: KeeperPatience, now: int) -> bool:
        """Note which keepers are connected, away or refuse; returns whether to look for another at once."""
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
        """Send the collected frames, to each keeper in one write."""
        for one in self._known.values():
            connection = one.linking.connection
            if connection is not None:
                connection.go_on()

    async def close(self) -> None:
        """Close all connections; called after the last publisher was answered."""
        tasks = [one.task for one in self._known.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self._pool.shutdown)
