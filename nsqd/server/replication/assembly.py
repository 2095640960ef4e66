"""The parts for copies put together: copies of this node, the logs it carries, and its departure."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence

from nsqcore.cluster.models import NodeInfo
from nsqcore.process.lifecycle import StartupError
from nsqcore.process.logs import Log
from nsqcore.process.tls import Certificates
from nsqd.engine.broker import Broker
from nsqd.log.layout import NewerVersion
from nsqd.options import NsqdOptions
from nsqd.replication.handed_over import DamagedHandOver
from nsqd.server.auth import AuthServers
from nsqd.server.replication.carrying import Carrying
from nsqd.server.replication.copying import Replication
from nsqd.server.replication.departure import Departure
from nsqd.server.replication.left_behind import NotTold, forget, leave_behind
from nsqd.server.replication.standing_in import StandsIn
from nsqd.server.replication.wanted import copying_options
from nsqd.server.tcp import Clients
from nsqd.server.tls import to_keepers
from nsqd.server.turn import Turn
from nsqd.server.upkeep import Checkpoints
from nsqd.server.watermark import Watermark
from nsqd.storage.data_path import DataPath


class CopyAssembly:
    """See the module; made with the daemon, started with `begin` when the data path is loaded."""

    def __init__(
        self,
        options: NsqdOptions,
        broker: Broker,
        data: DataPath,
        turn: Turn,
        clients: Clients,
        checkpoints: Checkpoints,
        watermark: Watermark,
        auth: AuthServers,
        log: Log,
        *,
        server_tls: ssl.SSLContext | None,
        nodes: Callable[[], Awaitable[Sequence[NodeInfo]]],
    ) -> None:
        """*nodes* returns the nodes that nsqlookupd lists. Raises StartupError."""
        self.certificates: Certificates | None = to_keepers(options)
        self._tls = None if self.certificates is None else self.certificates.context
        self.copying = Replication(
            copying_options(options, log.warning),
            broker,
            data,
            log,
            auth,
            server_tls=server_tls,
            client_tls=self._tls,
            unwilling=self._unwilling,
            nodes=nodes,
        )
        self.carrying = Carrying(
            broker,
            data,
            checkpoints,
            log,
            turn.ask,
            carry_after_ns=options.carry_after,
            carry_ask_ns=options.carry_ask,
        )
        self._broker = broker
        self._data = data
        self._turn = turn
        self._clients = clients
        self._checkpoints = checkpoints
        self._watermark = watermark
        self._log = log

    async def leave_behind(self) -> None:
        """Make sure that nothing handed over to another nsqd is served again. Raises StartupError."""
        options, data = self.copying.options, self._data
        try:
            await leave_behind(
                data.disk,
                data.path,
                data.reservation,
                options.node_id,
                options.address,
                options.home.secret,
                self._log,
                self._tls,
            )
        except (OSError, NewerVersion) as error:
            raise StartupError(f"failed to load {data.path} - {error}") from error
        except (NotTold, DamagedHandOver) as error:
            raise StartupError(str(error)) from error

    def begin(self) -> Departure:
        """Start, after the data path is loaded and before anybody is served; returns the node's departure.

        Raises StartupError.
        """
        copying, carrying, data = self.copying, self.carrying, self._data
        copying.opened = self._copy_home
        try:
            forget(data.disk, data.path, data.reservation)
            copying.begin()
            if copying.keepers is not None:
                keeping = copying.keepers.keeping
                keeping.too_much = self._too_much
                carrying.keep(copying.keepers, keeping.copies, copying.options.home.secret, self._tls)
                copying.carrier, copying.arrived = carrying.carrier, carrying.wake
                self._stand_in()
        except OSError as error:
            raise StartupError(f"failed to load {data.path} - {error}") from error
        self._clients.keep = copying.take
        self._copy_home()
        return Departure(
            self._broker,
            data,
            copying,
            carrying.carrier,
            self._checkpoints,
            self._log,
            tls=self._tls,
            send_away=self._clients.close_all,
            ask_turn=self._turn.ask,
        )

    def _stand_in(self) -> None:
        """Stand in for homes that do not come back."""
        carrier = self.carrying.carrier
        if carrier is not None:
            self.carrying.stands_in = StandsIn(
                *(carrier, self._broker, self._data, self._checkpoints, self.copying.options, self._log),
                self._tls,
                nodes=self.copying.nodes,
                ask_turn=self._turn.ask,
            )

    def tasks(self) -> list[asyncio.Task[None]]:
        """Start the tasks that run until the daemon stops."""
        return [
            asyncio.create_task(self.copying.watch(), name="copies"),
            asyncio.create_task(self.carrying.watch(), name="carried"),
        ]

    def _copy_home(self) -> None:
        """If this node has keepers, stream what it writes to them, and ask what they gave out."""
        copying = self.copying
        if copying.home is not None:
            self.carrying.come_home(copying.home, copying.appointments)
            self._turn.copying = copying
            self._checkpoints.written = copying.checkpointed

    def _too_much(self, size: int) -> str:
        """Why a hand-over of *size* bytes is refused; empty when it is not."""
        left = self._watermark.room()
        if left < 0 or size <= left:
            return ""
        return f"the disk of the keeper has room for {left} bytes, and {size} are to be handed over"

    def _unwilling(self) -> str:
        """Why no copies are taken at the moment; empty when they are."""
        if self._broker.draining:
            return "the keeper is draining"
        return "the disk of the keeper is nearly full" if self._broker.disk_low else ""
