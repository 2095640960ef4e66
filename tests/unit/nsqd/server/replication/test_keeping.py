"""The work of a keeper outside its connections."""

import asyncio
import threading
from pathlib import Path

from nsqcore.process.logs import Log, LogLevel
from nsqd.replication.copies import Copies
from nsqd.replication.willing import Keeping
from nsqd.server.replication.keeping import Keepers
from tests.support.simulated_disk import SimulatedDisk

DATA = Path("/data")


class Slow(SimulatedDisk):
    """Removes folders only when the test allows it, and records them."""

    def __init__(self) -> None:
        super().__init__(DATA)
        self.may = threading.Event()
        self.removed: list[Path] = []

    def remove_folder(self, path):
        self.may.wait(10)
        self.removed.append(path)


async def test_what_was_deleted_is_removed_by_one_thread_however_long_that_takes():
    disk = Slow()
    copies = Copies(disk, DATA)
    keepers = Keepers(Keeping(copies, b"k" * 16, 1, "k:4150"), Log("", LogLevel.FATAL), None, False, None)
    folders = [DATA / f"{number}.deleted" for number in range(3)]
    copies.removable += folders

    for _ in range(3):
        keepers.tick()
        await asyncio.sleep(0)
    disk.may.set()
    await keepers.removing

    assert disk.removed == folders
    assert copies.removable == []
    await keepers.close()
