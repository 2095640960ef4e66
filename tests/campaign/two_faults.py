"""Two faults: a failed call and then a crash, and a crash while a start repairs what a crash has left."""

import asyncio
import errno
import random
from collections.abc import Iterator
from typing import Final

from tests.campaign.check import Crash
from tests.campaign.crashes import Crashes
from tests.campaign.faults import Fault
from tests.campaign.ledger import Deed
from tests.campaign.model import After
from tests.campaign.node import Node
from tests.campaign.played import Broken, Played, World, a_day_behind, play, run
from tests.campaign.profiles import profile_of
from tests.campaign.result import Result, again
from tests.campaign.ruled import is_ruled
from tests.campaign.workload import Workload
from tests.support.simulated_disk import Call, SimulatedDisk
from tests.support.volume import Volume

FAILED_CALL: Final = "failed-call"
SECOND_CRASH: Final = "second-crash"

# Of each operation so many calls fail, each in a run of its own, once or so many times in a row. A sync that
# fails is the fault that a node can do least about.
_FAILING: Final = {
    "sync": 4,
    "append": 2,
    "sync_folder": 2,
    "rename": 1,
    "create": 1,
    "truncate": 1,
    "write_at": 1,
    "remove": 1,
}
_ROWS: Final = (1, 1, 1, 3, 25)
# Steps after the failed call at which the crash comes: all of the first ones, and some of the others.
_ALL_OF_FIRST: Final = 12
_OTHERS: Final = 20
# Crashes of the first life that are tried: some, and some behind a rename of a segment. Crashes of the start
# after each: the first steps, and some of all.
_FIRST: Final = 8
_RENAMED: Final = 2
_BEGINNING: Final = 8
_SECOND: Final = 12
# How long the second life may work when nothing ends it: a sync, checkpoints, removals.
_SECOND_LIFE_S: Final = (0.5, 1.2, 1.2, 1.2)


# --- a failed call, then a crash ---


def failed_call(seed: int, *, strict: bool, only: str = "") -> Result:
    """Calls of one workload fail, each in a run of its own, and a crash comes at some moment after that."""
    result = Result()
    whole = play(seed, strict=strict, stop=False)
    for fault in _faults(whole.disk.calls, random.Random(seed)):
        if only and not only.startswith(f"{fault.call}-"):
            continue
        try:
            played = _play_with(fault, seed, strict=strict)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            result.failed(f"{again(FAILED_CALL, seed, strict=strict)}, {fault}", error)
            continue
        result.add(_crash_after(fault, played, only))
        if result.violations:
            # What the other calls of this workload would tell is most often the same.
            break
    return result


def _faults(calls: list[Call], rng: random.Random) -> Iterator[Fault]:
    for operation, count in _FAILING.items():
        numbers = [call.number for call in calls if call.operation == operation]
        for number in rng.sample(numbers, min(count, len(numbers))):
            partial = rng.choice((0, 60)) if operation in {"append", "write_at"} else 0
            error = rng.choice((errno.EIO, errno.ENOSPC)) if partial else errno.EIO
            yield Fault(number, error, partial, rng.choice(_ROWS))


def _play_with(fault: Fault, seed: int, *, strict: bool) -> Played:
    world = World(seed)
    workload = Workload(
        world.disk, world.loop, world.rng, profile_of(seed), strict=strict, ruled=is_ruled(seed)
    )
    workload.faulty = True
    fault.put_on(world.disk)

    async def main() -> None:
        await workload.start_at_last()
        await workload.play()

    return run(world, workload, main, seed, strict=strict)


def _crash_after(fault: Fault, played: Played, only: str) -> Result:
    """After a power cut only strict mode promises anything: what a failed sync covers is nowhere for sure."""
    crashes = Crashes(FAILED_CALL, played, only=only)
    rng = random.Random(f"{played.seed} {fault.call}")
    # Until the fault, this run was that of the workload without it.
    failed_at = played.steps_at_call(fault.call)
    steps = len(played.disk.steps)
    chosen = set(range(failed_at, min(failed_at + _ALL_OF_FIRST, steps + 1)))
    chosen |= set(rng.sample(range(failed_at, steps + 1), min(_OTHERS, steps + 1 - failed_at)))
    with a_day_behind():
        for k, volume in played.disk.history():
            if k not in chosen:
                continue
            place = f"{fault.call}-{k}"
            now_ns, wall_ns = played.now_at(k)
            # A node whose disk fails may be late with its checkpoints.
            crash = Crash(k, now_ns, wall_ns, After.KILL, faulty=True)
            crashes.look(f"{place}:kill", volume.copy(), crash)
            if played.strict:
                crash = Crash(k, now_ns, wall_ns, After.STRICT_CUT, faulty=True)
                for number in range(2):
                    image = volume.after_power_cut(random.Random(f"{played.seed} {k} {number}"))
                    crashes.look(f"{place}:{number}", image, crash)
    return crashes.finish()


# --- a crash while a start repairs ---


def second_crash(seed: int, *, strict: bool, only: str = "") -> Result:
    """A crash, and a node that starts, repairs, lives on for some seconds and crashes at any step of that."""
    played = play(seed, strict=strict)
    crashes = Crashes(SECOND_CRASH, played, only=only)
    rng = random.Random(f"{seed} {strict}")
    steps = len(played.disk.steps)
    chosen = set(rng.sample(range(steps + 1), min(_FIRST, steps + 1)))
    chosen |= _behind_renames(played, rng)
    seconds = 0
    for k, volume in played.disk.history():
        if k not in chosen:
            continue
        for first in (After.KILL, After.STRICT_CUT if strict else After.CUT):
            place = f"{k}-{first.name}"
            if not crashes.wants(place):
                continue
            image = volume.copy()
            if first is not After.KILL:
                image = volume.after_power_cut(random.Random(f"{seed} {k} {strict}"))
            try:
                life = _SecondLife(played, image, k)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
                crashes.result.failed(again(SECOND_CRASH, seed, strict=strict, at=place), error)
                continue
            seconds += life.crash(crashes, place, played, k, first)
    result = crashes.finish()
    result.ledger[Deed.SECOND_CRASHES] += seconds
    return result


def _behind_renames(played: Played, rng: random.Random) -> set[int]:
    """Some of the moments at which a compacted segment has its name, and that is not durable yet."""
    renames = [
        number + 1
        for number, step in enumerate(played.disk.steps)
        if step[0] == "rename" and str(step[1][-1]).endswith(".log")
    ]
    return set(rng.sample(renames, min(_RENAMED, len(renames))))


class _SecondLife:
    """A node that starts from what the crash of another left, without clients."""

    def __init__(self, played: Played, image: Volume, k: int) -> None:
        """*k* steps of the first life were done when it crashed. Raises what the daemon would die of."""
        before = played.workload.loop.clock
        world = World(played.seed + 7, SimulatedDisk(volume=image))
        _, wall_ns = played.now_at(k)
        world.clock.monotonic_ns = before.monotonic_ns
        world.clock.set_wall((wall_ns - world.clock.wall_ns) / 1_000_000_000)
        self._disk = world.disk
        self._world = world
        # Steps that were done when the start was.
        self._started = 1 << 62

        async def main() -> None:
            node = Node(world.disk, world.loop, strict=played.strict)
            await node.start()
            self._started = len(world.disk.steps)
            for seconds in _SECOND_LIFE_S:
                await asyncio.sleep(seconds)
                if (ended := node.ended()) is not None:
                    raise Broken(f"a task of the node ended: {ended!r}")

        steps = 0
        try:
            world.play(main)
        finally:
            steps = len(self._disk.steps)
            world.close()
            del self._disk.steps[steps:]

    def crash(self, crashes: Crashes, place: str, played: Played, k: int, first: After) -> int:
        """Crash at some steps; nothing was published or taken since the first crash. Returns how many."""
        rng = random.Random(f"{played.seed} {place}")
        steps = len(self._disk.steps)
        chosen = set(rng.sample(range(steps + 1), min(_SECOND, steps + 1)))
        chosen |= set(range(min(_BEGINNING, steps + 1)))
        now_ns, _ = played.now_at(k)
        wall_ns = self._world.clock.latest_ns
        cut = After.STRICT_CUT if played.strict else After.CUT
        states = 0
        with a_day_behind():
            for j, volume in self._disk.history():
                if j not in chosen:
                    continue
                # A start makes durable what it has found.
                after = first if j >= self._started else cut
                at = f"{place}-{j}"
                crashes.look(f"{at}:kill", volume.copy(), Crash(k, now_ns, wall_ns, first))
                for number in range(2):
                    image = volume.after_power_cut(random.Random(f"{played.seed} {at} {number}"))
                    crashes.look(f"{at}:{number}", image, Crash(k, now_ns, wall_ns, after))
                states += 3
        return states
