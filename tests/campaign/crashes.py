"""Crashes at every step of a workload: kill -9, and the possible results of power cuts."""

import random
from collections import Counter

from nsqd.engine.settings import SettingsOf
from tests.campaign.check import Crash, violations
from tests.campaign.ledger import Deed, Ledger, of_start
from tests.campaign.model import After, Found
from tests.campaign.played import Played, a_day_behind
from tests.campaign.restored import read_back
from tests.campaign.result import Result, again
from tests.support.simulated_disk import SimulatedDisk
from tests.support.volume import Tree, Volume

# Number of power cuts tried at each step.
IMAGES = 3


class Restorer:
    """Starts from images; equal images are started only once."""

    def __init__(self, settings_of: SettingsOf) -> None:
        """*settings_of* returns the settings of policies."""
        self._settings_of = settings_of
        self._seen: dict[Tree, Found | str] = {}
        self.ledger: Ledger = Counter()

    def restore(self, volume: Volume) -> Found | str:
        """Return the recovered state, or the reason why the node did not start."""
        tree = volume.tree()
        found = self._seen.get(tree)
        if found is None:
            found = self._seen[tree] = self._start(SimulatedDisk(volume=volume))
        self.ledger[Deed.STATES] += 1
        return found

    def _start(self, disk: SimulatedDisk) -> Found | str:
        warnings: list[str] = []
        try:
            found = read_back(disk, warnings, self._settings_of)
        except Exception as error:  # noqa: BLE001 - every error means that the node does not start
            return f"the node does not start: {type(error).__name__}: {error}"
        self.ledger += of_start(disk.calls, warnings)
        self.ledger[Deed.DEFERRED_CARRIED] += sum(
            len(channel.dues)
            for topic in found.topics.values()
            for channel in [*topic.channels.values(), *([topic.backlog] if topic.backlog else [])]
        )
        return found


class Crashes:
    """Compares what a start after each crash of one workload finds with what clients were promised."""

    def __init__(self, campaign: str, played: Played, *, only: str = "") -> None:
        """*only* is the place of the one state to test, as a violation prints it."""
        self.result = Result(messages=len(played.model.messages))
        self._campaign = campaign
        self._played = played
        self._only = only
        self._restorer = Restorer(played.workload.settings_of)

    def wants(self, place: str) -> bool:
        """Say whether this state, or one whose place begins with this one, is to be tested."""
        only = self._only
        return not only or only == place or only.startswith((f"{place}:", f"{place}-"))

    def look(self, place: str, image: Volume, crash: Crash) -> None:
        """Start from *image*, which *crash* has left, and record violations."""
        if not self.wants(place):
            return
        self.result.states += 1
        found = self._restorer.restore(image)
        played = self._played
        texts = [found] if isinstance(found, str) else list(violations(played.model, found, crash))
        if texts:
            command = again(self._campaign, played.seed, strict=played.strict, at=place)
            self.result.broken(command, texts[:10] + _trace(played, crash.k))

    def finish(self) -> Result:
        self.result.ledger = self._restorer.ledger + self._played.ledger
        return self.result


def crash_everywhere(played: Played, campaign: str, *, only: str = "", every: int = 1) -> Result:
    """Compare what is restored after a crash at each *every*-th step with the promises."""
    crashes = Crashes(campaign, played, only=only)
    after = After.KILL
    if campaign == "power-cut":
        after = After.STRICT_CUT if played.strict else After.CUT
    with a_day_behind():
        for k, volume in played.disk.history():
            if not crashes.wants(str(k)) or (k + played.seed) % every:
                continue
            crash = Crash(k, *played.now_at(k), after)
            if after is After.KILL:
                crashes.look(f"{k}:0", volume.copy(), crash)
                continue
            for number in range(IMAGES):
                rng = random.Random(f"{played.seed} {k} {number}")
                crashes.look(f"{k}:{number}", volume.after_power_cut(rng), crash)
    return crashes.finish()


def _trace(played: Played, k: int) -> list[str]:
    """Return the last requests before the crash, and the last steps of the disk."""
    asked = [line for line in played.workload.trace if int(line.partition(":")[0]) <= k]
    steps = [
        f"step {number}: {name} {[a if not isinstance(a, bytes) else len(a) for a in arguments]}"
        for number, (name, arguments) in enumerate(played.disk.steps[:k])
    ]
    return asked[-12:] + steps[-12:]
