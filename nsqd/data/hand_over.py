"""``nsqd-data hand-over``: gives a data path on which no nsqd runs to a running nsqd, permanently.

The command is a life of the node that serves nobody: it restores the topics as a start does, sends them to
the other nsqd as to a keeper, and then notes here that they belong to that nsqd. It may be interrupted at any
moment and repeated; until that note is written, an nsqd may be started here as before.
"""

import asyncio
import io
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsqcore.process.logs import Log, LogLevel
from nsqcore.process.output import tell
from nsqcore.process.tls import load_certificate, reason
from nsqd.data.opened import DataPathRefused
from nsqd.engine import facts
from nsqd.engine.broker import Broker
from nsqd.engine.limits import Limits
from nsqd.log.disk import Disk
from nsqd.log.ids import MAX_NODE_ID, MessageIds
from nsqd.log.layout import NewerVersion
from nsqd.replication import handed_over
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.copies import Copies
from nsqd.replication.fields import MAX_TEXT
from nsqd.replication.frames import Refuse
from nsqd.replication.handed_over import DamagedHandOver
from nsqd.replication.homecoming import ComingHome
from nsqd.replication.opening import origin_of
from nsqd.server.clock import now_ns
from nsqd.server.replication.handing import HandingOver, HandOverFailed, HandOverProgress
from nsqd.server.replication.leaving import StoppedLogs, apart_home
from nsqd.server.replication.left_behind import NotTold, leave_behind
from nsqd.storage import metadata
from nsqd.storage.data_path import DataPath, StorageOptions, claim
from nsqd.storage.lock import lock_data_path
from nsqd.storage.metadata import BadMetadata
from nsqd.storage.topic_store import FOLDER_SUFFIX, store_of

# The name of this command where homes are named.
ADDRESS: Final = "nsqd-data"
_SAY_S: Final = 5.0
_ASK_NS: Final = 2_000_000_000


@dataclass(frozen=True, slots=True)
class HandOverOptions:
    data_path: Path
    to: tuple[str, ...]
    tls: bool = False
    authorities: str = ""
    certificate: str = ""
    key: str = ""
    secret_file: str = ""


def hand_over(options: HandOverOptions, say: Callable[[str], None]) -> bool:
    """Whether all of it now belongs to another nsqd; prints what happens, and *say* is told of problems.

    Raises DataPathRefused, and DataPathLocked when an nsqd runs there.
    """
    lock = lock_data_path(options.data_path)
    try:
        return asyncio.run(_Command(options, say).run())
    finally:
        Disk().close(lock)


class _Command:
    def __init__(self, options: HandOverOptions, say: Callable[[str], None]) -> None:
        self._options = options
        self._path = options.data_path
        self._say = say
        self._disk = Disk()
        self._progress = HandOverProgress()
        # What the parts log is discarded, because this command reports it.
        self._log = Log("", LogLevel.ERROR, io.StringIO())
        self._tls = _trust(options) if options.tls else None
        secret = _secret(options.secret_file)
        self._secret = lambda: secret

    async def run(self) -> bool:
        try:
            node_id = self._node_id()
            # Whatever is noted here is in the name of the node whose data path it was.
            data = DataPath(self._path, StorageOptions(), self._say, self._disk, node_id=node_id)
            return await self._run(data, node_id)
        except (OSError, NewerVersion) as error:
            raise DataPathRefused(f"{self._path}: {error}") from error
        except (DamagedHandOver, BadMetadata, NotTold) as error:
            raise DataPathRefused(str(error)) from error

    def _node_id(self) -> int:
        """The id of the node whose data path it was, from its newest files. Raises OSError."""
        folders = [self._path / name for name in self._disk.names(self._path) if name.endswith(FOLDER_SUFFIX)]
        return max((origin_of(self._disk, folder) for folder in folders), default=0)

    async def _run(self, data: DataPath, node_id: int) -> bool:
        note = handed_over.load(self._disk, self._path)
        if note is not None and data.reservation.named().hex() == note.identity:
            # The note is from an earlier run, which may not have finished.
            await leave_behind(
                self._disk, self._path, data.reservation, 0, ADDRESS, self._secret, self._log, self._tls
            )
            tell(f"{self._path} is handed over to {note.to}", sys.stdout)
            return True
        self._say_others()
        broker = Broker(MessageIds(node_id), Limits(), data)
        data.restore(broker, metadata.load(self._disk, self._path, self._say), now_ns())
        try:
            return await self._of(broker, data, node_id)
        finally:
            for topic in broker.topics.values():
                store = store_of(topic)
                if store is not None:
                    store.close()

    def _say_others(self) -> None:
        """Report the copies of other data paths that lie here: they are not handed over."""
        copies = Copies(self._disk, self._path)
        for identity in copies.identities():
            if copies.appointments(identity):
                ours = copies.for_good(identity) is not None
                what = "was handed over to this one, and stays here" if ours else "stays here"
                self._say(f"a copy of the data path {identity.hex()} {what}: start nsqd to have it given out")

    async def _of(self, broker: Broker, data: DataPath, node_id: int) -> bool:
        owed = sum(
            sum(end - start for start, end in facts.owed_by_any(topic)) for topic in broker.topics.values()
        )
        if not owed:
            tell(f"{self._path} owes nothing", sys.stdout)
            return True
        identity = data.reservation.identity
        file = AppointmentsFile(self._disk, self._path, identity, self._say)
        file.load()
        known = {one.address for one in file.fellows()}
        problems: list[str] = []
        takers = list(self._options.to)
        tries = 0
        while takers:
            taker = takers[0]
            # This command gives out no messages, so it may use any node id that the taker does not have.
            home = apart_home(identity, (node_id + tries) % (MAX_NODE_ID + 1), ADDRESS, self._secret, file)
            coming = ComingHome(broker, known, _ASK_NS, now_ns(), claim)
            home.heard = lambda keeper, name, frame, coming=coming: coming.heard(  # type: ignore[misc]
                keeper.address, name, frame
            )
            home.holdings, home.settled = coming.holdings, coming.settled
            logs = StoppedLogs(broker, home, self._path, self._disk, file, self._log, self._tls)
            try:
                await self._one(logs, taker, owed)
            except HandOverFailed as error:
                if error.noted:
                    raise DataPathRefused(str(error)) from error
                tries += 1
                if error.code == Refuse.SAME_NODE_ID and tries <= MAX_NODE_ID:
                    continue
                problems.append(str(error))
                del takers[0]
            else:
                return True
            finally:
                await logs.close()
        raise DataPathRefused(f"not handed over: {'; '.join(problems)}")

    async def _one(self, logs: StoppedLogs, taker: str, owed: int) -> None:
        """Hand over to one taker. Raises HandOverFailed and OSError."""
        handing = HandingOver(logs, taker, self._disk, self._log, self._progress, in_flight_s=1.0)
        shown = asyncio.create_task(self._show())
        try:
            await handing.run()
        finally:
            shown.cancel()
            await asyncio.gather(shown, return_exceptions=True)
        for address in [one for one in logs.keepers() if one != taker]:
            self._say(f"{address} may have an older copy: what was finished there may come again")
        tell(
            f"{self._path} is handed over to {taker}: {owed} messages, {self._progress.size} bytes",
            sys.stdout,
        )

    async def _show(self) -> None:
        progress = self._progress
        while True:
            await asyncio.sleep(_SAY_S)
            tell(f"{progress.state}: {progress.to} has {progress.sent} of {progress.size} bytes", sys.stdout)


def _trust(options: HandOverOptions) -> ssl.SSLContext:
    """The TLS context that the options ask for. Raises DataPathRefused."""
    try:
        context = ssl.create_default_context(cafile=options.authorities or None)
        if options.certificate:
            load_certificate(context, options.certificate, options.key or options.certificate)
    except (OSError, ValueError) as error:
        raise DataPathRefused(f"TLS: {reason(error)}") from error
    return context


def _secret(path: str) -> bytes:
    """The secret in the file; empty when no file is given. Raises DataPathRefused."""
    if not path:
        return b""
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise DataPathRefused(f"--secret-file: {error.strerror or error}") from error
    if not 0 < len(secret) <= MAX_TEXT:
        raise DataPathRefused(f"--secret-file must hold 1 to {MAX_TEXT} bytes, not {len(secret)}")
    return secret
