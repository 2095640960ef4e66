"""Runs rounds of requests and prints a line for each, until ``nsq_stat`` is stopped."""

import asyncio
import time
from functools import partial
from typing import Final

from nsqclient.wire.durations import SECOND
from nsqcore.cluster.http import ClusterHttp
from nsqcore.process.output import write_all
from nsqtools.blocking import BlockingThread
from nsqtools.nsq_stat.options import StatOptions
from nsqtools.nsq_stat.rounds import RoundFailed, fetch_stats
from nsqtools.nsq_stat.statistics import HEAD, Snapshot, line, rates, total
from nsqtools.process import Failed, log_line, unless_stopped

# The column heads are repeated after so many rounds, for a terminal that has scrolled.
ROUNDS_PER_HEAD: Final = 25

# A restart of one daemon takes a few rounds; failures that last longer end nsq_stat with exit code 1.
MAX_FAILED_ROUNDS: Final = 5


async def report(options: StatOptions, stop: asyncio.Event) -> None:
    """Print a line per round until ``--count`` lines are printed or ``stop`` is set."""
    async with ClusterHttp(
        connect_timeout=options.http_client_connect_timeout / SECOND,
        request_timeout=options.http_client_request_timeout / SECOND,
    ) as http:
        await unless_stopped(stop, _rounds(http, options))


async def _rounds(http: ClusterHttp, options: StatOptions) -> None:
    loop = asyncio.get_running_loop()
    stdout = BlockingThread("stdout")
    interval = options.interval / SECOND
    before: Snapshot = {}
    asked_at = 0.0
    shown = failures = 0
    due = loop.time()
    while True:
        try:
            answer = await fetch_stats(http, options)
        except RoundFailed as failure:
            failures += 1
            # In the first round nothing has shown yet that topic, channel and addresses are right.
            if not before or failures == MAX_FAILED_ROUNDS:
                raise Failed(f"ERROR: {failure}") from failure
            log_line(f"ERROR: {failure}")
        else:
            failures = 0
            for error in answer.errors:
                log_line(f"WARNING: missing from these statistics: {error}")
            now = time.monotonic()
            if shown % ROUNDS_PER_HEAD == 0:
                await stdout.run(partial(write_all, HEAD.encode()))
            if before:
                text = line(total(answer.value), *rates(before, answer.value, now - asked_at))
                await stdout.run(partial(write_all, text.encode()))
                if shown == options.count:
                    return
            shown += 1
            before, asked_at = answer.value, now
        # Rounds are due at fixed intervals; after a late round the next waits a whole interval, so that
        # rounds never come in a burst.
        due = due + interval if due + interval > loop.time() else loop.time() + interval
        await asyncio.sleep(due - loop.time())
