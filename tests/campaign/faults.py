"""Failing disk calls: any call once or for a while, and the reads of a node that starts."""

import errno
from dataclasses import dataclass
from typing import Final

from tests.campaign.played import Played, World, play, run
from tests.campaign.profiles import profile_of
from tests.campaign.result import Result, again
from tests.campaign.ruled import is_ruled
from tests.campaign.workload import Workload
from tests.support.simulated_disk import SimulatedDisk

# Errors of a disk, each with the number of bytes of a write that get through before it.
ERRORS: Final = ((errno.EIO, 0), (errno.ENOSPC, 0), (errno.ENOSPC, 60), (errno.EMFILE, 0))
READING: Final = ("open_read", "read", "size", "names", "identity")


@dataclass(frozen=True, slots=True)
class Fault:
    """Calls that fail from number *call* on."""

    call: int
    error: int
    partial: int = 0
    # How many calls fail in a row.
    length: int = 1
    # Only these operations count and fail; empty means all.
    operations: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = errno.errorcode[self.error]
        return f"{name} after {self.partial} bytes, call {self.call}, {self.length} times"

    def put_on(self, disk: SimulatedDisk) -> None:
        """Let the calls of the disk fail; the first call from now on has number 0."""
        seen = 0
        noted = disk.before_call

        def count(call) -> None:
            nonlocal seen
            noted(call)
            if self.operations and call.operation not in self.operations:
                return
            if self.call <= seen < self.call + self.length:
                disk.fail(self.error, call=call.number, partial=self.partial)
            seen += 1

        disk.before_call = count


def play_with(fault: Fault, seed: int, *, strict: bool, recover: bool = True) -> Played:
    """Play a workload while calls fail; with *recover* all messages must come afterwards. Raises Broken."""
    world = World(seed)
    workload = Workload(
        world.disk, world.loop, world.rng, profile_of(seed), strict=strict, ruled=is_ruled(seed)
    )
    workload.faulty = True
    fault.put_on(world.disk)

    async def main() -> None:
        await workload.start_at_last()
        await workload.play()
        if recover:
            await workload.recover()
            await workload.stop()

    return run(world, workload, main, seed, strict=strict)


def read_with(fault: Fault | None, played: Played) -> Workload:
    """Start from what *played* has left while reads fail; all pending messages must come. Raises Broken."""
    before = played.workload
    world = World(played.seed, played.disk.killed())
    world.clock.monotonic_ns = before.loop.clock.monotonic_ns
    world.clock.wall_offset_ns = before.loop.clock.wall_offset_ns
    world.clock.latest_ns = before.loop.clock.latest_ns
    workload = Workload(
        world.disk,
        world.loop,
        world.rng,
        before.profile,
        strict=played.strict,
        model=played.model.copy(),
        ruled=is_ruled(played.seed),
    )
    workload.faulty = True
    if fault is not None:
        fault.put_on(world.disk)

    async def main() -> None:
        await workload.start_at_last()
        await workload.recover()

    run(world, workload, main, played.seed, strict=played.strict)
    return workload


def any_call(seed: int, *, strict: bool, every: int) -> Result:
    """Let each *every*-th call of a workload fail, in a separate run."""
    whole = play(seed, strict=strict, stop=False)
    result = Result()
    for call in range(seed % every, len(whole.disk.calls), every):
        error, partial = ERRORS[result.states % len(ERRORS)]
        for length in (1, 40):
            fault = Fault(call, error, partial, length)
            result.states += 1
            try:
                played = play_with(fault, seed, strict=strict)
            except Exception as failure:  # noqa: BLE001 - every error is reported
                result.failed(f"{again('calls', seed, strict=strict)}, {fault}", failure)
            else:
                result.messages += len(played.model.messages)
                result.ledger += played.ledger
    return result


def any_read(seed: int, *, strict: bool, every: int) -> Result:
    """Let each *every*-th read of a node that starts and delivers everything fail, in a separate run."""
    played = play(seed, strict=strict, stop=bool(seed % 2))
    whole = read_with(None, played)
    result = Result(ledger=played.ledger)
    for number in range(seed % every, sum(call.operation in READING for call in whole.disk.calls), every):
        error = (errno.EIO, errno.EMFILE)[number % 2]
        fault = Fault(number, error, length=1 + 9 * (number % 3 == 0), operations=READING)
        result.states += 1
        result.messages += len(played.model.messages)
        try:
            read_with(fault, played)
        except Exception as failure:  # noqa: BLE001 - every error is reported
            result.failed(f"{again('reads', seed, strict=strict)}, {fault}", failure)
    return result
