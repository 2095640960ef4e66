"""Requests the list of nsqds from the other nsqlookupds after a start."""

import asyncio
import time
from typing import Final

from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.fanout import call_all
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.process.clock import steady_ns
from nsqcore.process.logs import Log
from nsqlookupd.readiness import Expected, Readiness

CHECK_S: Final = 0.1
# A large cluster's answer is long. With this pause the others spend at most a fifth of their time on it.
PACE: Final = 4


async def become_ready(readiness: Readiness, addresses: tuple[str, ...], http: ClusterHttp, log: Log) -> None:
    """Return when *readiness* is reached; until then the nsqlookupds at *addresses* are polled."""
    async with http:
        lookupds = [LookupdApi(http, address) for address in addresses]
        asked_again_at = 0.0
        while not readiness.ready:
            now = time.monotonic()
            if lookupds and now >= asked_again_at:
                try:
                    readiness.learn_topics(await _ask(lookupds))
                except Exception as error:  # noqa: BLE001 - a fault of ours must not keep it unready
                    reason = f"{type(error).__name__}: {error}"
                    log.warning("LOOKUP: asking the other nsqlookupds failed - %s", reason)
                took = time.monotonic() - now
                asked_again_at = now + max(CHECK_S, took * (PACE + 1))
            if not readiness.check(steady_ns()):
                await asyncio.sleep(CHECK_S)
    log.info("LOOKUP: ready: %s", readiness.reason)


async def _ask(lookupds: list[LookupdApi]) -> list[Expected]:
    answers = await call_all(lookupds, _known_to)
    return [known for _, known in answers.value if known is not None]


async def _known_to(lookupd: LookupdApi) -> Expected | None:
    """The nsqds and topics that an nsqlookupd knows; None when it is not ready, like the caller."""
    try:
        await lookupd.ready()
    except NodeError as error:
        # The original has no /ready.
        if error.status != 404:
            return None
    return await lookupd.topics_by_node()
