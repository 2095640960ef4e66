"""Two faults: a failed call and then a crash, and a crash during the start after a crash."""

import asyncio
import errno
import random
from collections.abc import Iterator
from typing import Final

from tests.campaign.check import Crash
from tests.campaign.crashes import Crashes
from tests.campaign.faults import Fault, play_with
from tests.campaign.ledger import Deed
from tests.campaign.model import After
from tests.campaign.node import Node
from tests.campaign.played import Broken, Played, World, a_day_behind, play
from tests.campaign.result import Result, again
from tests.support.simulated_disk import Call, SimulatedDisk
from tests.support.volume import Volume

FAILED_CALL: Final = "failed-call"
SECOND_CRASH: Final = "second-crash"

# Number of failing calls for each operation, each in a separate run; a call fails once or several times in a
# row. Syncs are tested most, because a node can do least about a failed one.
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
# Steps after the failed call at which a crash is tried: all of the first steps, and some of the others.
_ALL_OF_FIRST: Final = 12
_OTHERS: Final = 20
# Number of crashes tried: of the first life at random steps, and behind a rename of a segment; of the start
# after each, at its first steps, and at random steps.
_FIRST: Final = 8
_RENAMED: Final = 2
_BEGINNING: Final = 8
_SECOND: Final = 12
# How long the second life works, for a sync, checkpoints and removals.
_SECOND_LIFE_S: Final = (0.5, 1.2, 1.2, 1.2)


# --- a failed call, then a crash ---


def failed_call(seed: int, *, strict: bool, only: str = "") -> Result:
    """Let calls of one workload fail, each in a separate run, and crash at some moments after that."""
    result = Result()
    whole = play(seed, strict=strict, stop=False)
    for fault in _faults(whole.disk.calls, random.Random(seed)):
        if only and not only.startswith(f"{fault.call}-"):
            continue
        try:
            played = play_with(fault, seed, strict=strict, recover=False)
        except Exception as error:  # noqa: BLE001 - every error is reported
            result.failed(f"{again(FAILED_CALL, seed, strict=strict)}, {fault}", error)
            continue
        result.add(_crash_after(fault, played, only))
        if result.violations:
            # The other calls of this workload would mostly show the same violation.
            break
    return result


def _faults(calls: list[Call], rng: random.Random) -> Iterator[Fault]:
    for operation, count in _FAILING.items():
        numbers = [call.number for call in calls if call.operation == operation]
        for number in rng.sample(numbers, min(count, len(numbers))):
            partial = rng.choice((0, 60)) if operation in {"append", "write_at"} else 0
            error = rng.choice((errno.EIO, errno.ENOSPC)) if partial else errno.EIO
            yield Fault(number, error, partial, rng.choice(_ROWS))


def _crash_after(fault: Fault, played: Played, only: str) -> Result:
    """Test crashes after a fault. After a power cut only strict mode promises anything, because a failed
    sync leaves nothing certain.
    """
    crashes = Crashes(FAILED_CALL, played, only=only)
    rng = random.Random(f"{played.seed} {fault.call}")
    # Until the fault, this run is equal to the run without it.
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
            # ``faulty``, because a node with a failing disk may be late with its checkpoints.
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
    """Crash, start, repair and work for some seconds, and crash again at any step of that."""
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
            except Exception as error:  # noqa: BLE001 - every error is reported
                crashes.result.failed(again(SECOND_CRASH, seed, strict=strict, at=place), error)
                continue
            seconds += life.crash(crashes, place, played, k, first)
    result = crashes.finish()
    result.ledger[Deed.SECOND_CRASHES] += seconds
    return result


def _behind_renames(played: Played, rng: random.Random) -> set[int]:
    """Return some of the moments at which a compacted segment was renamed and that is not durable yet."""
    renames = [
        number + 1
        for number, step in enumerate(played.disk.steps)
        if step[0] == "rename" and str(step[1][-1]).endswith(".log")
    ]
    return set(rng.sample(renames, min(_RENAMED, len(renames))))


class _SecondLife:
    """A node without clients that starts from the disk after a crash."""

    def __init__(self, played: Played, image: Volume, k: int) -> None:
        """The first life crashed after *k* steps. Raises the error that would end the daemon."""
        before = played.workload.loop.clock
        world = World(played.seed + 7, SimulatedDisk(volume=image))
        _, wall_ns = played.now_at(k)
        world.clock.monotonic_ns = before.monotonic_ns
        world.clock.set_wall((wall_ns - world.clock.wall_ns) / 1_000_000_000)
        self._disk = world.disk
        self._world = world
        # Steps that were done when the start was complete.
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
        """Crash at some steps; return how many states were tested. No client acted since the first crash."""
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
                # After its start everything that the node has found is durable.
                after = first if j >= self._started else cut
                at = f"{place}-{j}"
                crashes.look(f"{at}:kill", volume.copy(), Crash(k, now_ns, wall_ns, first))
                for number in range(2):
                    image = volume.after_power_cut(random.Random(f"{played.seed} {at} {number}"))
                    crashes.look(f"{at}:{number}", image, Crash(k, now_ns, wall_ns, after))
                states += 3
        return states
