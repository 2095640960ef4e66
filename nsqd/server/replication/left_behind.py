"""Notes of handed-over logs at a start: the logs belong to another nsqd and are not served here again."""

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from nsqcore.process.logs import Log
from nsqd.log.disk import Disk
from nsqd.replication import handed_over
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.choosing import Appointed
from nsqd.replication.copies import Copies
from nsqd.replication.frames import Refuse
from nsqd.replication.handed_over import HandedOver
from nsqd.replication.home import Home
from nsqd.replication.home_link import HomeState
from nsqd.server.clock import now_ns
from nsqd.server.replication.handing import KNOWS, has_heard
from nsqd.server.replication.leaving import apart_home
from nsqd.server.replication.linking import Linking
from nsqd.storage.reservation import Reservation

_LOOK_S: Final = 0.02
# How long a taker that has not confirmed yet has to answer.
ANSWER_S: Final = 10.0


class NotTold(Exception):
    """A taker does not confirm that it has the logs handed over to it; the text is one sentence."""


class Tells(Protocol):
    """Tells a taker that a log belongs to it."""

    async def __call__(
        self, note: HandedOver, home: Home, disk: Disk, log: Log, tls: ssl.SSLContext | None
    ) -> None:
        """Tell the taker of *note*. Raises NotTold."""


async def tell(
    note: HandedOver,
    home: Home,
    disk: Disk,
    log: Log,
    tls: ssl.SSLContext | None,
    answer_s: float = ANSWER_S,
) -> None:
    """Tell the taker once more that a log belongs to it. Raises NotTold."""
    pool = ThreadPoolExecutor(1, "hand over")
    linking = Linking(home, Appointed(note.appointment, note.to), log, pool, disk, tls=tls, visit=True)
    task = asyncio.create_task(linking.run(), name=f"telling {note.to}")
    loop = asyncio.get_running_loop()
    until_s, told = loop.time() + answer_s, None
    try:
        while True:
            link = None if linking.connection is None else linking.connection.link
            if linking.refused in KNOWS or (told is not None and has_heard(told, note)):
                return
            if linking.refused and linking.refused != Refuse.TAKEN:
                raise NotTold(f"{note.to}: {linking.problem}")
            if link is not None and link is not told and link.state is HomeState.VISITING:
                link.hand_over(note.appointment)
                told = link
            if link is not None and linking.connection is not None:
                link.tick(now_ns())
                linking.connection.go_on()
            if loop.time() > until_s:
                raise NotTold(f"{note.to}: {linking.problem or 'it does not say that it has it'}")
            await asyncio.sleep(_LOOK_S)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(pool.shutdown)


async def leave_behind(
    disk: Disk,
    data_path: Path,
    reservation: Reservation,
    node_id: int,
    address: str,
    secret: Callable[[], bytes],
    log: Log,
    tls: ssl.SSLContext | None,
    teller: Tells = tell,
) -> None:
    """Remove logs that belong to another nsqd, before anything is loaded.

    A taker that has not confirmed is told again first, by *teller*, and nothing is removed before it answers.
    Raises OSError, NotTold, DamagedHandOver and NewerVersion.
    """
    note = handed_over.load(disk, data_path)
    if note is not None:
        identity = reservation.named()
        if identity.hex() == note.identity:
            await _make_sure(note, identity, data_path, disk, node_id, address, secret, log, tls, teller)
            handed_over.put_aside(disk, data_path, log.warning)
            reservation.disowned = identity
        else:
            # The data path has got another identity since, so that hand-over is completely done.
            handed_over.remove(disk, data_path)
    copies = Copies(disk, data_path)
    for identity in copies.identities():
        folder = copies.folder_of(identity)
        note = handed_over.load(disk, folder)
        if note is None:
            continue
        await _make_sure(
            *(note, identity, folder, disk, node_id, address, secret, log, tls, teller), of_others=True
        )
        for appointment in copies.appointments(identity):
            copies.remove(identity, appointment)
        handed_over.forget_copies(disk, folder)
        copies.remove_deleted()


async def _make_sure(
    note: HandedOver,
    identity: bytes,
    folder: Path,
    disk: Disk,
    node_id: int,
    address: str,
    secret: Callable[[], bytes],
    log: Log,
    tls: ssl.SSLContext | None,
    teller: Tells,
    *,
    of_others: bool = False,
) -> None:
    if note.confirmed:
        return
    log.info("HAND-OVER: %s is told again that it has the messages of %s", note.to, note.identity)
    file = AppointmentsFile(disk, folder, identity, log.warning)
    file.load()
    home = apart_home(identity, node_id, address, secret, file)
    home.stands_in = of_others
    try:
        await teller(note, home, disk, log, tls)
    except NotTold as error:
        raise NotTold(
            f"the messages of {folder} are handed over, and it is not sure that {error};"
            f" start that nsqd first, or remove {handed_over.FILE_NAME} if it is lost with its disk"
        ) from error
    handed_over.save(disk, folder, replace(note, confirmed=True))


def forget(disk: Disk, data_path: Path, reservation: Reservation) -> None:
    """Remove the note after the load, which has given the data path another identity. Raises OSError."""
    if reservation.disowned:
        handed_over.remove(disk, data_path)
