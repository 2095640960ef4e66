"""One round of requests: which nsqd have the topic, and the statistics of the channel there."""

from nsqclient.wire.node_error import TOPIC_NOT_FOUND, NodeError
from nsqcore.cluster.discovery import LookupdDiscovery
from nsqcore.cluster.fanout import Partial, call_all
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.nsqd_api import NsqdApi
from nsqtools.nsq_stat.options import StatOptions
from nsqtools.nsq_stat.statistics import Snapshot, Statistics


class RoundFailed(Exception):
    """The reason why this round has no statistics, as one sentence."""


async def fetch_stats(http: ClusterHttp, options: StatOptions) -> Partial[Snapshot]:
    """Return the channel's statistics by nsqd, and the errors of nodes that did not answer."""
    found = await _nsqds(http, options)
    apis = [NsqdApi(http, address) for address in found.value]
    stats = await call_all(
        apis,
        lambda nsqd: nsqd.stats(topic=options.topic, channel=options.channel, include_clients=False),
    )
    if stats.failed:
        raise RoundFailed(f"failed to get nsqd stats - {_sentence(stats.errors)}")
    snapshot = {
        api.address: Statistics.of(channel)
        for api, node in stats.value
        for topic in node.topics
        for channel in topic.channels
        if (topic.topic_name, channel.channel_name) == (options.topic, options.channel)
    }
    errors = (*found.errors, *stats.errors)
    # If a node did not answer, it may have the channel, so the name is not proved wrong.
    if not snapshot and not errors:
        raise RoundFailed(
            f"failed to find channel({options.channel}) in stats metadata for topic({options.topic})"
        )
    if not snapshot:
        raise RoundFailed(f"failed to get nsqd stats - {_sentence(errors)}")
    return Partial(snapshot, errors, len(apis))


async def _nsqds(http: ClusterHttp, options: StatOptions) -> Partial[list[str]]:
    if options.nsqd_http_address:
        return Partial(list(options.nsqd_http_address))
    discovery = LookupdDiscovery(http, options.lookupd_http_address)
    found = await discovery.producers_of(options.topic)
    if found.value is None:
        raise RoundFailed(f"failed to get topic producers - no nsqlookupd knows topic {options.topic}")
    if found.failed:
        raise RoundFailed(f"failed to get topic producers - {_sentence(found.errors)}")
    # An nsqlookupd that does not know the topic has answered.
    errors = tuple(error for error in found.errors if error.code != TOPIC_NOT_FOUND)
    return Partial([producer.http_address for producer in found.value], errors, found.targets)


def _sentence(errors: tuple[NodeError, ...]) -> str:
    return "; ".join(str(error) for error in errors)
