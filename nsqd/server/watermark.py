"""--disk-watermark: publishes are refused before the disk is full, and taken again when there is room."""

import asyncio
from pathlib import Path
from typing import Final

from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.log.disk import Disk
from nsqd.policies.quantities import watermark
from nsqd.server.health import Health

CHECK_INTERVAL_S: Final = 1.0
# Without a watermark the disk statistics are only shown, so they are read less often.
RARELY_S: Final = 10.0
# This many times the mark has to be free before publishes are taken again. Otherwise a node at the mark would
# change its state with each message.
_MORE: Final = 1.02
_SUBJECT: Final = "disk watermark"


class Watermark:
    """Watches how much of the disk is free."""

    def __init__(self, text: str, broker: Broker, disk: Disk, path: Path, health: Health, log: Log) -> None:
        """*text* is the value of --disk-watermark."""
        self._bytes, self._part = watermark(text)
        self._broker = broker
        self._disk = disk
        self._path = path
        self._health = health
        self._log = log
        self._unknown = False
        # The last disk statistics, in bytes; -1 while they are unknown.
        self.free = self.total = -1

    async def watch(self) -> None:
        """Check forever: once a second if there is a mark, otherwise every ten seconds."""
        while True:
            await self.check()
            await asyncio.sleep(CHECK_INTERVAL_S if self._bytes or self._part else RARELY_S)

    async def check(self) -> None:
        """Check once; if there is a mark, refuse or take publishes accordingly."""
        try:
            free, total = await asyncio.to_thread(self._disk.free, self._path)
        except OSError as error:
            # The last statistics stay.
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
        self._broker.set_disk_low(low)
        if low:
            self._health.failed(_SUBJECT, "disk is nearly full")
            self._log.error(
                "publishes are refused: %d bytes of the disk are free, %d is the mark", free, mark
            )
        else:
            self._health.worked(_SUBJECT)
            self._log.info("publishes are taken again: %d bytes of the disk are free", free)
