"""Shows the messages of all nsqd, until all are shown or ``nsq_peek`` is stopped."""

import asyncio
from functools import partial
from typing import Final

from nsqclient.wire.durations import SECOND
from nsqcore.process.output import write_all
from nsqtools.blocking import BlockingThread
from nsqtools.cluster import cluster_http, not_found_sentence, nsqds, reason
from nsqtools.nsq_peek.formats import line
from nsqtools.nsq_peek.options import PeekOptions
from nsqtools.nsq_peek.pages import PageReader, merged
from nsqtools.process import Failed, log_line, unless_stopped

WRITE_BYTES: Final = 1 << 16


async def peek(options: PeekOptions, stop: asyncio.Event) -> None:
    """Print messages until there are no more, ``--n`` are printed, or ``stop`` is set."""
    await unless_stopped(stop, _Peek(options).run())


class _Peek:
    def __init__(self, options: PeekOptions) -> None:
        self._options = options
        self._stdout = BlockingThread("stdout")
        self._printed = 0
        self._failed: set[str] = set()

    async def run(self) -> None:
        options = self._options
        async with cluster_http(options) as http:
            addresses, missing = await nsqds(http, options)
            for sentence in missing:
                log_line(f"WARNING: {sentence}")
            readers = [PageReader(http, address, options) for address in addresses]
            await self._round(readers)
            self._check_start(readers)
            while options.follow and not self._enough:
                await asyncio.sleep(options.interval / SECOND)
                for reader in readers:
                    reader.start_round()
                await self._round(readers)
        if not options.follow and (self._failed or missing):
            raise Failed("ERROR: these are not all messages: not every nsqd has answered")

    @property
    def _enough(self) -> bool:
        return 0 < self._options.n <= self._printed

    async def _round(self, readers: list[PageReader]) -> None:
        lines = bytearray()
        async for reader, raw in merged(readers):
            lines += line(self._options.output, reader.address, raw, headers=self._options.headers)
            self._printed += 1
            if self._enough:
                break
            # The lines so far are printed before the next page, which may take long. They are printed
            # together, because a change of the thread costs more than a line.
            if reader.needs_a_page or len(lines) >= WRITE_BYTES:
                await self._write(lines)
                lines = bytearray()
        await self._write(lines)
        for reader in readers:
            self._log_change(reader)

    async def _write(self, lines: bytearray) -> None:
        await self._stdout.run(partial(write_all, lines))

    def _log_change(self, reader: PageReader) -> None:
        """Report once that an nsqd does not answer, and once that it answers again."""
        failed = reader.error is not None and not reader.absent
        if failed and reader.error is not None and reader.address not in self._failed:
            self._failed.add(reader.address)
            log_line(f"WARNING: {reader.address}: {reason(reader.error)}")
        elif not failed and reader.address in self._failed:
            self._failed.discard(reader.address)
            log_line(f"{reader.address} answers again")

    def _check_start(self, readers: list[PageReader]) -> None:
        """Raise Failed when no nsqd has the topic or channel, or none answers."""
        if all(reader.absent for reader in readers):
            errors = [reader.error for reader in readers if reader.error]
            raise Failed(not_found_sentence(self._options.topic, self._options.channel, errors))
        if self._failed == {reader.address for reader in readers}:
            raise Failed("ERROR: no nsqd has shown any messages")
