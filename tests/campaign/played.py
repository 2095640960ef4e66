"""One workload played to its end, and everything that is known about it afterwards."""

import asyncio
import errno
import importlib
import random
from bisect import bisect_left
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from nsqd.server import clock
from tests.campaign.ledger import Deed, Ledger, of_calls
from tests.campaign.model import Model
from tests.campaign.node import DATA
from tests.campaign.profiles import PROFILES, profile_of
from tests.campaign.ruled import is_ruled
from tests.campaign.workload import Broken, Workload
from tests.support.simulated_disk import Call, SimulatedDisk
from tests.support.simulated_loop import SimulatedLoop, SimulatedTime

# The clock of a node that starts after a crash is behind, so that sequences cannot rely on it.
BEHIND_S: Final = -86_400


@dataclass(slots=True)
class Played:
    """A workload that has ended."""

    seed: int
    strict: bool
    workload: Workload
    disk: SimulatedDisk
    # For each call: (steps done, engine's time, latest wall clock time).
    times: list[tuple[int, int, int]]
    # What the workload did.
    ledger: Ledger

    @property
    def model(self) -> Model:
        return self.workload.model

    def now_at(self, k: int) -> tuple[int, int]:
        """Return the engine's time after *k* steps, and the latest wall clock time so far."""
        at = min(bisect_left(self.times, (k, 0, 0)), len(self.times) - 1)
        return self.times[max(0, at - 1)][1], self.times[at][2]

    def steps_at_call(self, number: int) -> int:
        """Return how many steps were done when call *number* was made."""
        return self.times[number][0]


class World:
    """A disk, a loop and a clock of one seed."""

    def __init__(self, seed: int, disk: SimulatedDisk | None = None) -> None:
        self.rng = random.Random(seed)
        self.clock = SimulatedTime()
        self.loop = SimulatedLoop(self.clock, random.Random(seed + 1))
        self.disk = disk or SimulatedDisk(DATA)
        self.times: list[tuple[int, int, int]] = []
        self.disk.before_call = self._called

    def _called(self, call: Call) -> None:
        self.times.append((len(self.disk.steps), self.clock.monotonic_ns, self.clock.latest_ns))
        # No switch while the reservation is extended, because other jobs would wait for its lock.
        if not call.path.endswith("reservation"):
            self.loop.maybe_switch()

    def play(self, main: Callable[[], object]) -> None:
        """Run the coroutine function *main* to its end."""
        with self.clock.everywhere():
            importlib.reload(clock)
            # Identities and salts come from the system and have no effect on the history.
            self.loop.run_until_complete(main())  # type: ignore[arg-type]

    def close(self) -> None:
        """End everything that still runs, as a kill does, so that nothing of it reaches the disk."""
        self.disk.fail(errno.EIO, times=None)
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        with self.clock.everywhere():
            self.loop.run_until_complete(_ended(asyncio.all_tasks(self.loop)))
        self.disk.heal()
        self.loop.close()


def run(world: World, workload: Workload, main: Callable[[], object], seed: int, *, strict: bool) -> Played:
    """Run *main*, which runs *workload*, and end what still runs then. Raises Broken."""
    calls = 0
    try:
        world.play(main)
    except Exception as error:
        error.add_note("\n".join(workload.trace[-30:]))
        error.add_note("\n".join([str(call) for call in world.disk.calls if call.error][:10]))
        raise
    finally:
        calls, steps = len(world.disk.calls), len(world.disk.steps)
        world.close()
        del world.disk.calls[calls:], world.disk.steps[steps:]
    ledger = workload.done + of_calls(world.disk.calls)
    ledger[Deed.WORKLOADS] = 1
    return Played(seed, strict, workload, world.disk, world.times, ledger)


def play(seed: int, *, strict: bool, stop: bool | None = None, disk: SimulatedDisk | None = None) -> Played:
    """Play the workload of a seed; with *stop* it ends with a clean stop. Raises Broken."""
    world = World(seed, disk)
    workload = Workload(
        world.disk, world.loop, world.rng, profile_of(seed), strict=strict, ruled=is_ruled(seed)
    )

    async def main() -> None:
        await workload.start()
        await workload.play()
        if seed // len(PROFILES) % 2 if stop is None else stop:
            await workload.stop()

    return run(world, workload, main, seed, strict=strict)


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def a_day_behind():
    """Set a clock that is behind, for starts after a crash, until the end of the block."""
    time = SimulatedTime()
    time.set_wall(BEHIND_S)
    with time.everywhere():
        importlib.reload(clock)
        yield


__all__ = ["Broken", "Played", "World", "a_day_behind", "play", "run"]
