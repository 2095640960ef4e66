"""Finds the topics to archive: those that were named, or those of the cluster that match."""

import asyncio
from collections.abc import AsyncIterator

from nsqclient.wire.durations import SECOND
from nsqcore.cluster.discovery import LookupdDiscovery
from nsqcore.cluster.http import ClusterHttp
from nsqcore.patterns import search_for
from nsqcore.process.logs import Log
from nsqtools.nsq_to_file.options import ToFileOptions


async def rounds(options: ToFileOptions, http: ClusterHttp, log: Log) -> AsyncIterator[list[str]]:
    """Yield the topics to archive: once if they were named, otherwise now and at each refresh."""
    if options.topic:
        yield matching(list(dict.fromkeys(options.topic)), options.topic_pattern, log)
        return
    lookupds = LookupdDiscovery(http, options.lookupd_http_address)
    while True:
        found = await lookupds.topics()
        for error in found.errors:
            log.error("could not retrieve topic list: %s", error)
        # The topics that other nsqlookupds list are used even when one does not answer.
        yield matching(found.value, options.topic_pattern, log)
        await asyncio.sleep(options.topic_refresh / SECOND)


def matching(topics: list[str], pattern: str, log: Log) -> list[str]:
    matches = search_for(pattern)
    wanted = []
    for topic in topics:
        if topic in {".", ".."}:
            log.error("couldn't create logger for new topic %s: it is no file name", topic)
        elif not matches(topic):
            log.debug("skipping topic %s (doesn't match pattern %s)", topic, pattern)
        else:
            wanted.append(topic)
    return wanted
