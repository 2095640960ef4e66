"""--disk-watermark: publishes are refused before the disk is full, and taken again when there is room."""

import asyncio
from pathlib import Path
from typing import Final

from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.log.disk import Disk
from nsqd.policies.quantities import watermark
from nsqd.server.health import Health

LOOK_S: Final = 1.0
# Without a mark nobody waits for it; the figure is for who looks at the node.
RARELY_S: Final = 10.0
# So much more has to be free before publishes are taken again, or a node at the mark would change its mind
# with each message.
_MORE: Final = 1.02
_WHAT: Final = "disk watermark"


class Watermark:
    """Looks how much is free."""

    def __init__(self, text: str, broker: Broker, disk: Disk, path: Path, health: Health, log: Log) -> None:
        """*text* is the option's."""
        self._bytes, self._part = watermark(text)
        self._broker = broker
        self._disk = disk
        self._path = path
        self._health = health
        self._log = log
        self._unknown = False
        # What was found last, in bytes; -1 while it is not known.
        self.free = self.total = -1

    def room(self) -> int:
        """Bytes that may still be written before the mark; -1 while that is not known."""
        if self.free < 0:
            return -1
        return max(0, self.free - (self._bytes or int(self.total * self._part)))

    async def watch(self) -> None:
        """Look forever: once a second where there is a mark."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S if self._bytes or self._part else RARELY_S)

    async def look(self) -> None:
        """Look once, and judge it if there is a mark."""
        try:
            free, total = await asyncio.to_thread(self._disk.free, self._path)
        except OSError as error:
            # What was found last holds.
            if not self._unknown:
                self._log.warning("cannot tell how much of the disk is free - %s", error)
            self._unknown = True
            return
        self._unknown = False
        self.free, self.total = free, total
        if not (self._bytes or self._part):
            return
        mark = self._bytes or int(total * self._part)
        low = free < (mark * _MORE if self._broker.disk_low else mark)
        if low == self._broker.disk_low:
            return
        self._broker.tell_disk_low(low)
        if low:
            self._health.failed(_WHAT, "disk is nearly full")
            self._log.error(
                "publishes are refused: %d bytes of the disk are free, %d is the mark", free, mark
            )
        else:
            self._health.worked(_WHAT)
            self._log.info("publishes are taken again: %d bytes of the disk are free", free)
