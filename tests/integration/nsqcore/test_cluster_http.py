"""The cluster client against a server whose answers the test chooses."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from aiohttp import web

from bench.ports import free_port
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.nsqd_api import NsqdApi
from nsqcore.cluster.secret import SecretFile
from tests.support.peers import http_served, served


@pytest.fixture
async def http():
    async with ClusterHttp(request_timeout=0.5) as http:
        yield http


@pytest.fixture
async def answering():
    """A function that starts a server with one answer to everything; returns its address and its requests."""
    servers = AsyncExitStack()

    async def start(status=200, body="{}"):
        seen = []

        async def handler(request):
            shown = request.headers.get("Authorization", "")
            seen.append(f"{request.method} {request.raw_path} {shown}".rstrip())
            return web.Response(status=status, text=body)

        host, port = await servers.enter_async_context(http_served(handler))
        return f"{host}:{port}", seen

    async with servers:
        yield start


async def failure(call):
    with pytest.raises(NodeError) as caught:
        await call
    return caught.value


async def test_arguments_are_escaped_so_that_ephemeral_is_no_fragment(http, answering):
    address, seen = await answering()

    await NsqdApi(http, address).pause_channel("a#ephemeral", "b&c")

    assert seen == ["POST /channel/pause?topic=a%23ephemeral&channel=b%26c"]


async def test_stats_requests_are_limited_to_the_question(http, answering):
    address, seen = await answering()

    await NsqdApi(http, address).stats(topic="t", channel="c", include_clients=False)

    assert seen == ["GET /stats?format=json&topic=t&channel=c&include_clients=false"]


async def test_refused_connection_is_unreachable_node(http):
    address = f"127.0.0.1:{free_port()}"

    error = await failure(NsqdApi(http, address).info())

    assert str(error) == f'Get "http://{address}/info": connect: connection refused'
    assert error.unreachable
    assert http.unreachable == 1


async def test_unknown_host_is_unreachable_node(http):
    error = await failure(LookupdApi(http, "no-such-host.invalid:4161").topics())

    assert error.reason == "no such host: no-such-host.invalid"


UNKNOWN = "; the outcome is unknown, it may still happen"


async def test_node_that_does_not_answer_in_time_is_unreachable(http):
    async def silent(reader, _writer):
        await reader.read()

    async with served(silent) as address:
        error = await failure(LookupdApi(http, address).create_topic("t"))

    assert str(error) == f'Post "http://{address}/topic/create?topic=t": timed out after 0.5s' + UNKNOWN


@pytest.mark.parametrize("body", ["", "no json", "[]", '{"topics":{}}', '{"topics":[1]}', "[" * 5000])
async def test_wrong_answer_is_error_and_no_outage(http, answering, body):
    address, _ = await answering(body=body)

    error = await failure(LookupdApi(http, address).topics())

    assert error.reason.startswith(f"unusable answer from http://{address}/topics: ")
    assert not error.unreachable


async def test_incomplete_answer_names_missing_part(http, answering):
    address, _ = await answering(body="{}")

    error = await failure(NsqdApi(http, address).drain_remaining())

    assert error.reason == f"unusable answer from http://{address}/drain: there is no 'remaining' in it"


async def test_refusal_carries_its_code(http, answering):
    address, _ = await answering(404, '{"message":"TOPIC_NOT_FOUND"}')

    error = await failure(LookupdApi(http, address).lookup("t"))

    assert (error.status, error.code) == (404, "TOPIC_NOT_FOUND")
    assert http.refused == 1


async def test_node_that_requires_tls_is_asked_again_over_https(http, answering):
    tls_port = free_port()
    address, _ = await answering(403, f'{{"message":"TLS_REQUIRED","https_port":{tls_port}}}')

    error = await failure(NsqdApi(http, address).info())

    assert error.url == f"https://127.0.0.1:{tls_port}/info"
    assert error.reason == "connect: connection refused"


@pytest.fixture
def secret(tmp_path):
    (tmp_path / "secret").write_text("hush")
    return SecretFile(str(tmp_path / "secret"))


async def test_node_that_requires_tls_is_not_shown_secret_without_it(secret, answering):
    address, seen = await answering(403, f'{{"message":"TLS_REQUIRED","https_port":{free_port()}}}')

    async with ClusterHttp(request_timeout=0.5, secret=secret) as http:
        await failure(NsqdApi(http, address).pause_topic("t"))

    assert seen == ["POST /topic/pause?topic=t"]


@pytest.mark.parametrize("allowed", ["configured", "allow_cleartext"])
async def test_node_without_tls_is_shown_secret_when_it_asks_for_it(secret, answering, allowed):
    address, seen = await answering(401, '{"message":"AUTH_REQUIRED"}')
    how = {"configured": [address]} if allowed == "configured" else {"allow_cleartext": True}

    async with ClusterHttp(request_timeout=0.5, secret=secret, **how) as http:
        error = await failure(NsqdApi(http, address).pause_topic("t"))

    assert seen == ["POST /topic/pause?topic=t", "POST /topic/pause?topic=t Bearer hush"]
    assert error.code == "AUTH_REQUIRED"


async def test_node_that_is_not_configured_is_not_sent_secret_without_tls(secret, answering):
    address, seen = await answering(401, '{"message":"AUTH_REQUIRED"}')

    async with ClusterHttp(request_timeout=0.5, secret=secret, configured=["other:4151"]) as http:
        error = await failure(NsqdApi(http, address).pause_topic("t"))

    assert seen == ["POST /topic/pause?topic=t"]
    assert "not sent without TLS to a node that nsqlookupd named; --auth-allow-cleartext" in error.reason


@pytest.mark.parametrize(
    "body", ["no", '{"https_port":"x"}', '{"https_port":0}', '{"https_port":70000}', "[]", "[" * 200_000]
)
async def test_403_that_names_no_https_port_is_plain_refusal(http, answering, body):
    address, seen = await answering(403, body)

    error = await failure(NsqdApi(http, address).info())

    assert error.status == 403
    assert len(seen) == 1


async def test_answer_without_end_is_not_kept(answering):
    address, _ = await answering(body="[" + " " * 100_000 + "]")

    async with ClusterHttp(most_answer=100_000) as http:
        error = await failure(NsqdApi(http, address).info())

    assert error.reason == "its answer is longer than 100000 bytes"


async def test_long_refusal_is_cut(http, answering):
    address, _ = await answering(500, "x" * 100_000)

    assert len(str(await failure(NsqdApi(http, address).info()))) < 1100


async def test_answer_is_not_unpacked(http):
    async def handler(request):
        reply = web.Response(text="{}" + " " * 100_000)
        reply.enable_compression(web.ContentCoding.gzip)
        return reply

    async with http_served(handler) as (host, port):
        error = await failure(NsqdApi(http, f"{host}:{port}").info())

    assert error.reason.startswith("unusable answer")


async def test_redirects_are_not_followed(http, answering):
    address, seen = await answering(301, "moved")

    error = await failure(NsqdApi(http, address).info())

    assert error.status == 301
    assert len(seen) == 1


async def test_outside_its_context_it_refuses_to_work():
    with pytest.raises(RuntimeError, match="async with"):
        await LookupdApi(ClusterHttp(), "127.0.0.1:1").topics()


async def test_answer_keeps_its_place_among_those_in_memory_until_it_was_used(answering):
    address, _ = await answering(body='{"version": "1"}')
    refusing, _ = await answering(status=500)
    async with ClusterHttp(request_timeout=2, bodies_at_once=1) as http:
        # Neither a refusal nor a failed connection keeps a place.
        await failure(NsqdApi(http, refusing).stats())
        await failure(NsqdApi(http, f"127.0.0.1:{free_port()}").stats())
        other = None
        async with NsqdApi(http, address).stats_body(()) as body:
            other = asyncio.create_task(NsqdApi(http, address).stats())
            await asyncio.wait({other}, timeout=0.2)
            waited = not other.done()
        stats = await other

    assert body == b'{"version": "1"}'
    assert waited
    assert stats.version == "1"


@pytest.mark.parametrize("tail", ["/path?x", "/#", "?x=1", "#", "\\", " "])
async def test_address_with_path_or_query_is_refused(http, answering, tail):
    address, seen = await answering(200, "{}")
    host, _, port = address.rpartition(":")
    for wrong in (f"{address}{tail}:4151", f"{host}{tail}:{port}", f"me@{address}"):
        with pytest.raises(NodeError, match="is no address"):
            await http.fetch(wrong, "/stats", [])

    assert seen == []
