"""The end of a drain: all that is owed here goes to another nsqd, the logs of others that lie here first."""

import asyncio
import math
import ssl
from collections.abc import Callable
from typing import Final

from nsqcore.process.logs import Log
from nsqd.engine import facts
from nsqd.engine.broker import Broker
from nsqd.engine.topic import Topic
from nsqd.replication import handed_over
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


class Departure:
    """What of a node is handed over, one log after the other; one task."""

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
        """*send_away* closes the connections of all clients; *around* is the network and the time."""
        self.progress = HandOverProgress()
        # To whom all of this node was handed over; empty while it was not.
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
        # It is the taker's, which has not said that it knows.
        self._noted: HandedOver | None = None
        # It is the taker's, which knows; empty before.
        self._gone_to = ""

    # --- what is asked for ---

    def begin(self, to: str, in_flight_s: float) -> None:
        """Hand over to that address, or to the best there is; once."""
        if self._task is None or (self._task.done() and not self.handed_to):
            self.progress = HandOverProgress("looking", to=to)
            self._task = asyncio.create_task(self._run(to, in_flight_s), name="hand-over")

    @property
    def under_way(self) -> bool:
        """Whether something is on its way."""
        return self._task is not None and not self._task.done()

    @property
    def may_be_cancelled(self) -> bool:
        """Whether nothing of it is another's yet.

        What is published behind the note would be lost: the next start removes what is here.
        """
        noted = self._noted is not None or self.progress.state in ("noting", "noted")
        return not (self.handed_to or self._gone_to or noted)

    async def cancel(self) -> None:
        """Go on serving, as far as that is ours."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            self.progress = HandOverProgress()

    # --- doing it ---

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
                self._log.warning("HAND-OVER: no other nsqd is known that could take what is left")
                return
            self.progress.refused = all(error.refused for error in problems)
            raise HandOverFailed("; ".join(map(str, problems)))
        except (HandOverFailed, OSError) as error:
            self.progress.state, self.progress.problem = "failed", str(error)
            self._log.error("HAND-OVER: %s", error)
        except Exception as error:
            # A fault: whoever waits for the end is told, and may begin again.
            self.progress.state = "failed"
            self.progress.problem = f"{type(error).__name__}: {error}"
            self._log.error("HAND-OVER: it ended with a fault - %s", self.progress.problem)
            raise

    async def _to(self, taker: str, in_flight_s: float) -> None:
        """Raises HandOverFailed and OSError."""
        await self._pass_on(taker, in_flight_s)
        if not self._gone_to and any(map(self._owes, self._broker.topics.values())):
            await self._hand_over_own(taker, in_flight_s)
            # A home may have begun anew meanwhile, without its end, which is here.
            await self._pass_on(taker, in_flight_s)
        self._broker.leaving = True
        self.handed_to = taker
        self.progress.state = "handed over"
        self.progress.sent = max(self.progress.sent, self.progress.size)
        self._log.info("HAND-OVER: nothing is left here, all is at %s", taker)
        # Consumers look for the topics elsewhere.
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
        # Others keep what they have of it until the taker has copies of its own, and tells them.
        self._gone_to = taker

    def _handing(self, logs: OwnLogs | CarriedLogs, taker: str, in_flight_s: float) -> HandingOver:
        return HandingOver(
            logs,
            taker,
            self._data.disk,
            self._log,
            self.progress,
            in_flight_s=in_flight_s,
            # What is noted is not served here any more: a taker that was killed is told when it is back.
            tell_s=math.inf,
        )

    async def _pass_on(self, taker: str, in_flight_s: float) -> None:
        """Hand over what this node has of others. A copy whose home may be back in a moment is waited for."""
        carrier = self._carrier
        while carrier is not None:
            known = {one.identity for one in carrier if carrier.may_be_needed(one.identity)}
            if not known:
                return
            for identity in sorted(known):
                # While the one before it was handed on this one may have gone.
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
        # Above every copy there ever was: this one is the newest wherever it is looked at.
        file.appointments.last = max(file.appointments.last, one.serving.appointment)
        options = self._copying.options
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
            # Of one whose topics were all deleted here there is nothing to have.
            if logs.topics():
                await self._handing(logs, taker, in_flight_s).run()
            is_over = carrier.is_here(identity)
        except NotOurs:
            is_over = True
        except HandOverFailed as error:
            if error.code == Refuse.HANDED_OVER:
                # It had that very copy once, which was given back since: what is here goes as another one.
                logs.give_up_number(taker)
            raise
        finally:
            await logs.close()
        if not is_over:
            carrier.give_away(identity)
            # A thread puts them away, and is looked for by a timer.
            while carrier.was_given_away(identity) and carrier.of(identity):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)
            is_over = not carrier.was_given_away(identity)
        if is_over:
            # Its home came back meanwhile and goes on with its copy: the taker has been told for nothing.
            logs.go_on()
            await asyncio.to_thread(handed_over.remove, disk, folder)
            return
        await asyncio.to_thread(handed_over.forget_copies, disk, folder)
        carrier.successors.forget(identity)
