"""Publishes stdin: reads chunks, cuts them into records, and decides whether it succeeded."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Final

from nsqclient import Producer
from nsqtools.blocking import BlockingThread
from nsqtools.process import Failed, log_line
from nsqtools.to_nsq.options import ToNsqOptions
from nsqtools.to_nsq.publisher import Publisher
from nsqtools.to_nsq.records import Records
from nsqtools.to_nsq.throttle import Throttle

STDIN: Final = 0
PIECE_BYTES: Final = 1 << 16
# After a stop the records already read are still sent at the given rate. So with a rate it reads little
# ahead.
THROTTLED_PIECE_BYTES: Final = 1 << 12

# How long publishing the records already read may take after a signal.
FAREWELL_SECONDS: Final = 30.0

PROGRESS_SECONDS: Final = 10.0


async def publish(options: ToNsqOptions, stop: asyncio.Event) -> None:
    """Publish stdin to its end, or until a signal; returns when all records read are confirmed."""
    config = options.client_config(options.producer_opt, headers=bool(options.header))
    addresses = dict.fromkeys(options.nsqd_tcp_address)
    publishing = Publisher(
        options.topic,
        [Producer(address, config=config) for address in addresses],
        options.headers,
    )
    records = Records(os.fsencode(options.delimiter))
    throttled = options.rate >= 1
    if throttled:
        log_line(f"Throttling messages rate to max:{options.rate}/second")
    feeding = asyncio.create_task(_feed(publishing, records, options, stop))
    progress = asyncio.create_task(_log_progress(publishing))
    failing = asyncio.create_task(publishing.failed.wait())
    stopping = asyncio.create_task(_overdue(stop))
    await asyncio.wait({feeding, failing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for task in (progress, failing, stopping, feeding):
        task.cancel()
    await asyncio.wait({feeding})
    await publishing.close()
    _check_outcome(publishing, feeding, addresses)
    if stop.is_set():
        rest = f"; {records.unfinished} bytes of an unfinished record are left out" * bool(records.unfinished)
        log_line(f"stopped: {publishing.confirmed} records are published{rest}")


def _check_outcome(publishing: Publisher, feeding: "asyncio.Task[None]", addresses: dict[str, None]) -> None:
    error = publishing.failure
    if error is None and not feeding.cancelled():
        error = feeding.exception()
    if error is None and publishing.confirmed < publishing.sent:
        error = TimeoutError("no confirmation came in time")
    if error is not None:
        where = f"each of {len(addresses)} nsqd" if len(addresses) > 1 else "nsqd"
        raise Failed(
            f"ERROR: {error}; of {publishing.sent} records {publishing.confirmed} were confirmed by {where}"
        ) from error
    if feeding.cancelled():
        raise Failed(f"ERROR: stopped with {publishing.confirmed} records published and more read")


async def _feed(publishing: Publisher, records: Records, options: ToNsqOptions, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    throttle = Throttle(options.rate, loop.time()) if options.rate >= 1 else None
    async for piece in _pieces(THROTTLED_PIECE_BYTES if throttle else PIECE_BYTES, stop):
        for record in records.feed(piece) if piece else records.end():
            if throttle is not None and (pause := throttle.take(loop.time())):
                await asyncio.sleep(pause)
            await publishing.send(record)


async def _pieces(size: int, stop: asyncio.Event) -> AsyncIterator[bytes]:
    """Read stdin until its end, which yields an empty chunk, or until ``stop``."""
    stdin = BlockingThread("stdin")
    stopping = asyncio.ensure_future(stop.wait())
    try:
        while not stop.is_set():
            reading = asyncio.ensure_future(stdin.run(lambda: os.read(STDIN, size)))
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                return
            try:
                piece = reading.result()
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise OSError(f"failed to read from stdin - {reason}") from error
            yield piece
            if not piece:
                return
    finally:
        stopping.cancel()


async def _overdue(stop: asyncio.Event) -> None:
    await stop.wait()
    await asyncio.sleep(FAREWELL_SECONDS)


async def _log_progress(publishing: Publisher) -> None:
    """Report the progress at intervals."""
    before = 0
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        rate = (publishing.confirmed - before) / PROGRESS_SECONDS
        before = publishing.confirmed
        log_line(f"{before} records published, {rate:.0f}/second")
