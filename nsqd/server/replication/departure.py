"""The end of a drain: all owed messages go to another nsqd, first those of other nodes' logs here."""

import asyncio
import math
import ssl
from collections.abc import Callable
from typing import Final

from nsqcore.process.logs import Log
from nsqd.engine import facts
from nsqd.engine.broker import Broker
from nsqd.engine.topic import Topic
from nsqd.replication import handed_over, succession
from nsqd.replication.carried_copy import CarriedCopy
from nsqd.replication.carrier import Carrier
from nsqd.replication.frames import Refuse
from nsqd.replication.handed_over import HandedOver
from nsqd.replication.serving import CopyPhase
from nsqd.server.replication.copying import Replication
from nsqd.server.replication.handing import HandingOver, HandOverFailed, HandOverProgress, NotOurs
from nsqd.server.replication.leaving import (
    OUTSIDE,
    CarriedLogs,
    OwnLogs,
    Surroundings,
    WritesCheckpoints,
    apart_home,
)
from nsqd.storage.data_path import DataPath

_LOOK_S: Final = 0.1
_NO_TARGET: Final = (
    "no other nsqd is named that could take what is left: --hand-over-to, or --keepers of nsqd"
)


class Departure:
    """Hands over a node's logs, those of one data path after the other; one task."""

    def __init__(
        self,
        broker: Broker,
        data: DataPath,
        copying: Replication,
        carrier: Carrier | None,
        checkpoints: WritesCheckpoints,
        log: Log,
        *,
        tls: ssl.SSLContext | None,
        send_away: Callable[[], None],
        ask_turn: Callable[[], None],
        around: Surroundings = OUTSIDE,
    ) -> None:
        """*send_away* closes the connections of all clients; *around* is the network and the clock."""
        self.progress = HandOverProgress()
        # The address to which everything was handed over; empty until then.
        self.handed_to = ""
        self._broker = broker
        self._data = data
        self._copying = copying
        self._carrier = carrier
        self._checkpoints = checkpoints
        self._log = log
        self._tls = tls
        self._send_away = send_away
        self._ask_turn = ask_turn
        self._around = around
        self._task: asyncio.Task[None] | None = None
        # The note that this node's own log belongs to a taker that has not confirmed it yet.
        self._noted: HandedOver | None = None
        # The taker that has this node's own log and has confirmed it; empty until then.
        self._gone_to = ""

    # --- requests ---

    def begin(self, to: str, in_flight_s: float) -> None:
        """Begin to hand over to that address, or to the best keeper, unless that is under way or done."""
        if self._task is None or (self._task.done() and not self.handed_to):
            self.progress = HandOverProgress("looking", to=to)
            self._task = asyncio.create_task(self._run(to, in_flight_s), name="hand-over")

    @property
    def under_way(self) -> bool:
        """Whether a hand-over is under way."""
        return self._task is not None and not self._task.done()

    @property
    def may_be_cancelled(self) -> bool:
        """Whether no note says yet that this node's log belongs to another nsqd.

        After the note the next start removes what is here, so messages published then would be lost.
        """
        noted = self._noted is not None or self.progress.state in ("noting", "noted")
        return not (self.handed_to or self._gone_to or noted)

    async def cancel(self) -> None:
        """Stop handing over, and go on serving the logs that still belong to this node."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            self.progress = HandOverProgress()

    # --- the hand-over ---

    async def _run(self, to: str, in_flight_s: float) -> None:
        try:
            problems: list[HandOverFailed] = []
            to = self._gone_to or (self._noted.to if self._noted is not None else to)
            for taker in [to] if to else await self._copying.takers():
                try:
                    await self._to(taker, in_flight_s)
                except HandOverFailed as error:
                    if error.noted:
                        raise
                    self._log.warning("HAND-OVER: not to %s - %s", taker, error)
                    problems.append(error)
                else:
                    return
            if not problems:
                self.progress.state, self.progress.refused = "nobody", True
                self.progress.problem = _NO_TARGET
                self._log.warning("HAND-OVER: %s", _NO_TARGET)
                return
            self.progress.refused = all(error.refused for error in problems)
            raise HandOverFailed("; ".join(map(str, problems)))
        except (HandOverFailed, OSError) as error:
            self.progress.state, self.progress.problem = "failed", str(error)
            self._log.error("HAND-OVER: %s", error)
        except Exception as error:
            # A fault of ours: the caller sees it in the progress, and may begin again.
            self.progress.state = "failed"
            self.progress.problem = f"{type(error).__name__}: {error}"
            self._log.error("HAND-OVER: it ended with a fault - %s", self.progress.problem)
            raise

    async def _to(self, taker: str, in_flight_s: float) -> None:
        """Hand everything over to *taker*. Raises HandOverFailed and OSError."""
        await self._pass_on(taker, in_flight_s)
        # What was begun before the drain belongs to what is handed over; a topic may owe nothing until then.
        while not self._broker.at_rest:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_S)
        if not self._gone_to and any(map(self._owes, self._broker.topics.values())):
            await self._hand_over_own(taker, in_flight_s)
            # Meanwhile a home may have started again without the end of its log, which is here.
            await self._pass_on(taker, in_flight_s)
        self._broker.leaving = True
        self.handed_to = taker
        self.progress.state = "handed over"
        self.progress.sent = max(self.progress.sent, self.progress.size)
        self._log.info("HAND-OVER: nothing is left here, all is at %s", taker)
        # So that consumers look for the topics elsewhere.
        self._send_away()

    @staticmethod
    def _owes(topic: Topic) -> bool:
        return not topic.ephemeral and bool(facts.owed_by_any(topic))

    async def _hand_over_own(self, taker: str, in_flight_s: float) -> None:
        self.progress.what = "its own messages"
        logs = OwnLogs(
            self._data.reservation.identity,
            self._data.path,
            self._broker,
            self._copying,
            self._checkpoints,
            send_away=self._send_away,
            ask_turn=self._ask_turn,
        )
        try:
            await self._handing(logs, taker, in_flight_s).run(self._noted)
        except HandOverFailed as error:
            self._noted = self._noted or error.noted
            raise
        # Other keepers keep their copies until the taker has copies elsewhere and tells them.
        self._gone_to = taker

    def _handing(self, logs: OwnLogs | CarriedLogs, taker: str, in_flight_s: float) -> HandingOver:
        return HandingOver(
            logs,
            taker,
            self._data.disk,
            self._log,
            self.progress,
            in_flight_s=in_flight_s,
            # After the note nothing is served here, so a taker that was killed is told whenever it is back.
            tell_s=math.inf,
        )

    async def _pass_on(self, taker: str, in_flight_s: float) -> None:
        """Hand over the logs of other nodes that are here, after waiting for homes that may be back soon."""
        carrier = self._carrier
        while carrier is not None:
            known = {one.identity for one in carrier if carrier.may_be_needed(one.identity)}
            if not known:
                return
            for identity in sorted(known):
                # This copy may have been removed while another one was handed on.
                copies = carrier.of(identity)
                if not copies or identity in carrier.stood_in or carrier.is_here(identity):
                    continue
                if copies[0].phase is CopyPhase.CARRIED and not any(one.busy for one in copies):
                    await self._pass_on_one(carrier, copies, taker, in_flight_s)
            self.progress.state, self.progress.what = "waiting", "homes that may be back"
            await asyncio.sleep(_LOOK_S)

    async def _pass_on_one(
        self, carrier: Carrier, copies: list[CarriedCopy], taker: str, in_flight_s: float
    ) -> None:
        one, identity = copies[0], copies[0].identity
        self.progress.what = f"messages of {identity.hex()[:8]}"
        if any(carrier.owes_more(older, one) for older in copies[1:]):
            raise HandOverFailed(f"an older copy of {identity.hex()} is given out here yet")
        if one.troubles:
            raise HandOverFailed(
                f"the copy of {identity.hex()} cannot be read: {next(iter(one.troubles.values()))}"
            )
        disk = self._data.disk
        folder = carrier.folder_of(identity)
        file = carrier.successors.file(identity)
        options = self._copying.options
        # The next number is above those of all copies that ever were, so the taker's copy is the newest.
        succession.begin(file, one, carrier.fellows.known(identity), options.address)
        home = apart_home(identity, options.node_id, options.address, options.home.secret, file)
        logs = CarriedLogs(
            one,
            self._checkpoints,
            home,
            folder,
            disk,
            file,
            self._log,
            self._tls,
            allow=carrier.allow,
            send_away=self._send_away,
            ask_turn=self._ask_turn,
            around=self._around,
        )
        try:
            # If all its topics were deleted here, there is nothing to hand over.
            if logs.topics():
                await self._handing(logs, taker, in_flight_s).run()
            is_over = carrier.is_here(identity)
        except NotOurs:
            is_over = True
        except HandOverFailed as error:
            if error.code == Refuse.HANDED_OVER:
                # The taker once had this very copy and gave it back: hand it over under another number.
                logs.give_up_number(taker)
            raise
        finally:
            await logs.close()
        if not is_over:
            carrier.give_away(identity)
            # A thread puts the copies away; poll until it is done.
            while carrier.was_given_away(identity) and carrier.of(identity):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)
            is_over = not carrier.was_given_away(identity)
        if is_over:
            # The home came back meanwhile and goes on with its copy, so the hand-over has no effect.
            logs.go_on()
            await asyncio.to_thread(handed_over.remove, disk, folder)
            return
        await asyncio.to_thread(handed_over.forget_copies, disk, folder)
        carrier.successors.forget(identity)
