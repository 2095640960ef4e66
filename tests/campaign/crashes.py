"""Crashes at every step of a workload: kill -9, and what power cuts may leave."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.campaign.check import Crash, violations
from tests.campaign.model import After, Found
from tests.campaign.played import Played, a_day_behind
from tests.campaign.restored import read_back
from tests.support.simulated_disk import SimulatedDisk
from tests.support.volume import Tree, Volume


@dataclass(slots=True)
class Violation:
    """A promise that was broken, and how to see it again."""

    campaign: str
    seed: int
    strict: bool
    k: int
    image: int
    texts: list[str]
    trace: list[str]

    def __str__(self) -> str:
        mode = "--strict" if self.strict else "--default"
        again = (
            f"python -m tests.campaign {self.campaign} --seed {self.seed} {mode} --at {self.k}:{self.image}"
        )
        return "\n".join([again, *(f"  {text}" for text in self.texts[:10]), *self.trace])


@dataclass(slots=True)
class Tally:
    """What a campaign has seen."""

    states: int = 0
    distinct: int = 0
    messages: int = 0
    violations: list[Violation] = field(default_factory=list)


class Restorer:
    """Starts from images; the same image is started from once."""

    def __init__(self) -> None:
        self._seen: dict[Tree, Found | str] = {}

    @property
    def distinct(self) -> int:
        return len(self._seen)

    def restore(self, volume: Volume) -> Found | str:
        """What was there, or why the node did not start."""
        tree = volume.tree()
        found = self._seen.get(tree)
        if found is None:
            try:
                found = read_back(SimulatedDisk(volume=volume))
            except Exception as error:  # noqa: BLE001 - any of them keeps the node from starting
                found = f"the node does not start: {type(error).__name__}: {error}"
            self._seen[tree] = found
        return found


def images(volume: Volume, campaign: str, seed: int, k: int, count: int) -> Iterator[Volume]:
    """Disks as the crash may leave them."""
    if campaign == "kill":
        yield volume.copy()
    else:
        for number in range(count):
            yield volume.after_power_cut(random.Random(f"{seed} {k} {number}"))


def crash_everywhere(
    played: Played, campaign: str, tally: Tally, *, count: int = 3, at: tuple[int, int] | None = None
) -> None:
    """Compare what is restored after a crash at every step; *at* is the only one to look at."""
    restorer = Restorer()
    after = After.KILL
    if campaign == "power-cut":
        after = After.STRICT_CUT if played.strict else After.CUT
    with a_day_behind():
        for k, volume in played.disk.history():
            if at is not None and k != at[0]:
                continue
            now_ns, wall_ns = played.now_at(k)
            crash = Crash(k, now_ns, wall_ns, after)
            for number, image in enumerate(images(volume, campaign, played.seed, k, count)):
                if at is not None and number != at[1]:
                    continue
                tally.states += 1
                found = restorer.restore(image)
                texts = [found] if isinstance(found, str) else list(violations(played.model, found, crash))
                if texts:
                    trace = _trace(played, k)
                    tally.violations.append(
                        Violation(campaign, played.seed, played.strict, k, number, texts, trace)
                    )
    tally.distinct += restorer.distinct
    tally.messages += len(played.model.messages)


def _trace(played: Played, k: int) -> list[str]:
    """What was asked for before the crash, and the last steps of the disk."""
    asked = [line for line in played.workload.trace if int(line.partition(":")[0]) <= k]
    steps = [
        f"  step {number}: {name} {[a if not isinstance(a, bytes) else len(a) for a in arguments]}"
        for number, (name, arguments) in enumerate(played.disk.steps[:k])
    ]
    return [f"  {line}" for line in asked[-12:]] + steps[-12:]
