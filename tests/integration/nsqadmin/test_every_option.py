"""All pages and routes in front of two nsqds that report everything that an nsqd can report about itself."""

import asyncio
import json
import re
import socket
import threading
from contextlib import ExitStack, contextmanager

import pytest

from nsqclient._config import Config
from nsqclient._consumer import Consumer
from tests.support.auth_server import AuthServer
from tests.support.certificates import Authority
from tests.support.processes import Cluster
from tests.support.site import Site, ask
from tests.support.waiting import wait_until

CHANNEL = "/topics/orders/billing"
PATHS = [
    "/",
    "/topics?sort=depth&dir=desc&q=ord",
    "/topics/orders",
    CHANNEL,
    "/nodes",
    "/nodes/NODE",
    "/lookup",
    "/counter",
    "/action?action=empty&topic=orders&channel=billing",
    "/action?action=tombstone&topic=orders&node=NODE",
    "/metrics",
    "/config/log_level",
    "/api/topics",
    "/api/topics?inactive=true",
    "/api/topics/orders",
    "/api" + CHANNEL,
    "/api/nodes",
    "/api/nodes/NODE",
    "/api/counter",
]


class Readers:
    """Consumers on their own event loop, with unusual connections."""

    def __init__(self, configs, addresses):
        self._configs, self._addresses = configs, addresses
        self._stop = asyncio.Event()
        self.read = 0

    async def flow(self):
        consumers = [
            Consumer("orders", "billing", self._handle, nsqd_addresses=self._addresses, config=config)
            for config in self._configs
        ]
        async with asyncio.TaskGroup() as tasks:
            for consumer in consumers:
                tasks.create_task(consumer.start())
        await self._stop.wait()
        for consumer in consumers:
            await consumer.close()

    def _handle(self, _):
        self.read += 1

    @contextmanager
    def running(self):
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            thread = threading.Thread(target=lambda: runner.run(self.flow()))
            thread.start()
            try:
                yield
            finally:
                loop.call_soon_threadsafe(self._stop.set)
                thread.join()


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A site with traffic whose nsqds require TLS and AUTH, measure latency and know zone and region."""
    folder = tmp_path_factory.mktemp("full")
    authority = Authority(folder / "ca")
    with ExitStack() as stack:
        cluster = Cluster(folder / "cluster")
        stack.callback(cluster.close)
        auth = stack.enter_context(AuthServer())
        drain = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        drain.bind(("127.0.0.1", 0))
        lookupd = cluster.nsqlookupd()
        flags = [
            *authority.flags,
            "--tls-required=tcp-https",
            "--e2e-processing-latency-percentile=1.0,0.99,0.95,0.5",
            "--e2e-processing-latency-window-time=1m",
            "--enable-experiment=topology-aware-consumption",
            "--topology-region=eu",
            "--deflate",
            "--snappy",
            "--sync-every=1",
            "--max-channel-consumers=10",
            "--statsd-mem-stats",
            f"--statsd-address=127.0.0.1:{drain.getsockname()[1]}",
            f"--auth-http-address={auth.address}",
        ]
        nsqds = [
            cluster.nsqd(
                *flags,
                f"--topology-zone=eu-{zone}",
                lookupds=[lookupd],
                listeners=("tcp", "http", "https"),
            )
            for zone in ("a", "b")
        ]
        admin = cluster.nsqadmin("--graphite-url=http://127.0.0.1:1/", "--acl-http-header=X-User")
        tls = authority.client()
        common = {
            "auth_secret": "s",
            "tls": tls,
            "topology_region": "eu",
            "max_in_flight": 20,
        }
        configs = [
            Config(client_id="one", topology_zone="eu-a", sample_rate=90, **common),
            Config(client_id="two", topology_zone="eu-b", snappy=True, **common),
            Config(client_id="three", topology_zone="us-a", deflate=True, **common),
        ]
        for nsqd in nsqds:
            nsqd.create("orders", "billing")
        readers = Readers(configs, [nsqd.tcp_address for nsqd in nsqds])
        stack.enter_context(readers.running())
        site = Site(lookupd, nsqds, admin)

        def measured():
            for nsqd in nsqds:
                nsqd.post("/pub?topic=orders", b"message")
            channel = json.loads(ask(admin, "GET", "/api" + CHANNEL).body)
            shares = [node["e2e_processing_latency"]["count"] for node in channel.get("nodes", [])]
            return channel.get("client_count") == 6 and len(shares) == 2 and min(shares) > 2

        wait_until(measured, "messages flow and their latency shows")
        yield site


@pytest.mark.parametrize("path", PATHS)
def test_pages_and_routes_answer_with_all_options_in_use(full, path):
    answer = ask(full.admin, "GET", path.replace("NODE", full.nsqds[0].http_address))

    assert answer.status == 200, answer.text
    assert answer.body
    assert "panic" not in full.admin.logs()


@pytest.mark.parametrize("path", PATHS[:8])
def test_pages_have_their_statistics_as_json(full, path):
    path = path.replace("NODE", full.nsqds[0].http_address)
    answer = ask(full.admin, "GET", f"{path}{'&' if '?' in path else '?'}format=json")

    assert answer.headers["Content-Type"].startswith("application/json")
    assert json.loads(answer.body)["statistics_at"] > 0


def test_percentile_of_several_nodes_is_called_that_of_worst(full):
    channel = json.loads(ask(full.admin, "GET", "/api" + CHANNEL).body)
    page = ask(full.admin, "GET", CHANNEL)
    topic = ask(full.admin, "GET", "/topics/orders")

    merged = {entry["quantile"]: entry for entry in channel["e2e_processing_latency"]["percentiles"]}
    assert set(merged) == {1.0, 0.99, 0.95, 0.5}
    assert merged[0.5]["min"] <= merged[0.5]["average"] <= merged[0.5]["max"]
    assert "of all nodes together at most this" in page.body.decode()
    assert re.search(r"99th ?, worst node", topic.text)


def test_consumers_are_told_apart_by_client_id_and_address(full):
    text = ask(full.admin, "GET", CHANNEL).text
    clients = json.loads(ask(full.admin, "GET", "/api" + CHANNEL).body)["clients"]

    assert {client["client_id"] for client in clients} == {"one", "two", "three"}
    assert all(client["remote_address"] in text for client in clients)
    assert all(
        word in text for word in ("sampled 90%", "TLS", "snappy", "deflate", "authed anna", "same zone")
    )
