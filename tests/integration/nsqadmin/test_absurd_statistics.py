"""A node that reports what no nsqd has is named, and everything else is shown as before."""

import asyncio
import json

import pytest

from tests.support.stub_site import stub_site

TOO_MANY = 2**63
MOST, LEAST = 2**63 - 1, -(2**63)
TOPIC = "topic.0000.events"


# -- every figure, on every page


PAGES = (
    "/",
    "/?format=json",
    "/?format=text",
    "/?format=csv&list=",
    "/topics",
    f"/topics/{TOPIC}",
    f"/topics/{TOPIC}?format=json",
    f"/topics/{TOPIC}?format=csv&list=channels-",
    f"/topics/{TOPIC}/billing",
    f"/topics/{TOPIC}/billing?format=json",
    f"/topics/{TOPIC}/billing?format=csv&list=consumers-",
    f"/topics/{TOPIC}/billing?by=host",
    "/nodes",
    "/nodes?format=json",
    "/nodes?format=csv&list=",
    "/nodes/{node}",
    "/nodes/{node}?format=json",
    "/counter",
    "/history",
    "/metrics",
    "/api/topics",
    f"/api/topics/{TOPIC}",
    f"/api/topics/{TOPIC}/billing",
    "/api/nodes",
    "/api/nodes/{node}",
    "/api/counter",
    f"/action?action=empty&topic={TOPIC}",
    "/action?action=drain&node={node}",
)

# The fields that nsqd reports besides the statistics of the stub.
CHANNEL = [
    "depth",
    "backend_depth",
    "in_flight_count",
    "deferred_count",
    "requeue_count",
    "timeout_count",
    "message_count",
    "client_count",
    "zone_local_msg_count",
    "region_local_msg_count",
    "global_msg_count",
    "oldest_message_time",
]
OF_TOPIC = ["depth", "backend_depth", "message_count", "message_bytes", "replicas_in_sync", "replicas_wanted"]
CLIENT = [
    "connect_ts",
    "in_flight_count",
    "ready_count",
    "finish_count",
    "requeue_count",
    "message_count",
    "sample_rate",
]
DISK = ["free_bytes", "total_bytes", "fsync_p99_ns"]


def extreme(number, real):
    """An edit that makes every figure of an answer *number*, and every one with a fraction *real*."""
    percentiles = [{"quantile": real, "value": real}, {"quantile": 0.5, "value": -real}]

    def edit(answer):
        answer.update(
            start_time=number,
            under_replicated=number,
            disk=dict.fromkeys(DISK, number),
            promoted=[{"identity": "ab", "pending": number}],
        )
        # Asked for one channel, the stub answers with its topic alone.
        for topic in answer.get("topics", [answer]):
            latency = {"count": number, "percentiles": percentiles}
            topic.update(dict.fromkeys(OF_TOPIC, number), e2e_processing_latency=latency)
            for channel in topic["channels"]:
                channel.update(dict.fromkeys(CHANNEL, number), e2e_processing_latency=latency)
                for client in channel["clients"] or ():
                    client.update(dict.fromkeys(CLIENT, number))

    return edit


def replication(number, real):
    replica = {"address": "a", "state": "in_sync", "lag_seconds": real}
    replica |= dict.fromkeys(["lag_bytes", "topics", "in_sync_topics", "caught_up_topics"], number)
    copy = {"origin": "b", "state": "promoted"}
    copy |= dict.fromkeys(["number", "epoch", "topics", "pending", "yielded"], number)
    node = dict.fromkeys(["incarnation", "epoch", "replicas_wanted"], number)
    return json.dumps({**node, "replicas": [replica], "copies": [copy]}).encode()


def edited(node, number, real):
    """Make all that *node* answers extreme."""
    node.edit = extreme(number, real)
    usual = node.answer

    def answer(method, path, query):
        if path == "/replication":
            return 200, replication(number, real)
        if path == "/ready":
            return 503, b"NOK - draining"
        if path == "/drain":
            return 200, json.dumps({"remaining": number}).encode()
        return usual(method, path, query)

    node.answer = answer


async def failing(site):
    """Return the pages that are not there."""
    paths = [path.format(node=site.address(0)) for path in PAGES]
    return [(path, reply.status) for path in paths if (reply := await site.get(path)).status != 200]


@pytest.mark.parametrize(
    ("number", "real"),
    [(MOST, 1e308), (LEAST, -1e308), (MOST, 253_402_300_799.0), (-1, -62_135_596_800.0)],
)
async def test_pages_show_largest_reportable_statistics(number, real):
    async with stub_site(nodes=3, topics=1, channels=2) as site:
        await site.get("/")
        await site.round()
        for node in site.nodes[:2]:
            edited(node, number, real)

        await site.problem("warning", "draining", site.address(0))
        await site.round()

        assert await failing(site) == []
        assert not site.daemon.collector.work.broken.done()
        assert "no statistics" not in {one[1] for one in await site.problems()}


@pytest.mark.parametrize("number", [TOO_MANY, 2**64, 10**30, LEAST - 1])
async def test_node_with_impossible_values_gives_no_statistics(number):
    async with stub_site(nodes=2, topics=1) as site:
        edited(site.nodes[0], number, 1.0)
        await site.get("/")

        await site.problem("problem", "no statistics", site.address(0))
        missing = await failing(site)

    # Programs that query this node, or its consumers, get the reason why there are none.
    assert {path for path, _ in missing} <= {f"/api/nodes/{site.address(0)}"}


@pytest.mark.parametrize("port", [0, -1, 70_000, MOST, LEAST])
async def test_invalid_port_is_unreachable_node(port):
    def misled(stubs):
        usual = stubs.nodes[0].describe
        stubs.nodes[0].describe = lambda: usual() | {"http_port": port, "tcp_port": port}

    async with stub_site(nodes=2, topics=1, before=misled) as site:
        await site.get("/")

        await site.problem("problem", "unreachable", f"127.0.0.1:{port}")
        assert [
            one
            for path in PAGES
            if (one := (await site.get(path.format(node=site.address(1)))).status) != 200
        ] == []


async def test_port_beyond_64_bits_is_unusable_answer():
    def misled(stubs):
        usual = stubs.nodes[0].describe
        stubs.nodes[0].describe = lambda: usual() | {"http_port": 10**30}

    async with stub_site(nodes=2, topics=1, before=misled) as site:
        reply = await site.get("/nodes")

    assert reply.status == 502
    assert f"nsqlookupd {site.lookupds[0]} gave an unusable answer" in reply.text


# -- faults of our own


class Stumbling:
    """Stands in for the store of a node's earlier statistics."""

    empty_ns = {}  # noqa: RUF012 - as a pace has
    consumers = {}  # noqa: RUF012

    def note(self, *_):
        raise TypeError("unexpected")


async def test_error_from_statistics_of_node_is_error_of_that_node():
    async with stub_site(nodes=2, topics=1) as site:
        await site.round()
        member = site.daemon.collector.membership.members[site.address(0)]
        pace, member.pace = member.pace, Stumbling()

        async def named():
            return ("problem", "no statistics", site.address(0)) in await site.problems()

        async def well():
            return not await site.problems()

        await site.until(named, "the node is named")
        assert (
            site.log.count(f"nsqd {site.address(0)} gives no statistics: unusable answer from http://") == 1
        )
        member.pace = pace
        await site.until(well, "it is well again")
        assert not site.daemon.collector.work.broken.done()


async def test_internal_error_ends_nsqadmin():
    async def stumble(_):
        raise TypeError("unexpected")

    async with stub_site(nodes=1, topics=1) as site:
        site.daemon.collector.adder.followers.append(stumble)

        with pytest.raises(TypeError, match="unexpected"):
            async with asyncio.timeout(10):
                await site.daemon.collector.work.broken
