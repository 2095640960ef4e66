"""A Chromium in front of a cluster with traffic."""

import asyncio
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from nsqclient import ProtocolError
from nsqclient._config import Config
from nsqclient._consumer import Consumer
from nsqclient._producer import Producer
from tests.support.processes import Cluster
from tests.support.site import Site, build_site
from tests.support.tabs import tabs
from tests.support.waiting import wait_until

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PUBLISHED_PER_SECOND = 50

# Expectations wait this long, because the machine may be busy. A fulfilled one costs no time.
expect.set_options(timeout=20_000)


# Not for the whole session: while Playwright is open its event loop counts as the running one, and coroutine
# tests in other files could not run.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium from $CHROMIUM, from the PATH, or as Playwright installed it; without any the tests fail."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        if path is None and not Path(playwright.chromium.executable_path).exists():
            pytest.fail("these tests need a Chromium: apt install chromium, or name one in $CHROMIUM")
        try:
            browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        except Error as error:
            pytest.fail(f"Chromium does not start ({path}): {error}")
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Topic ``orders`` flows through channel ``billing``; its channel ``audit`` has no consumer."""
    cluster = Cluster(tmp_path_factory.mktemp("browser"))
    try:
        site = build_site(cluster)
        site.fill("orders", "billing", "audit")
        with _traffic(site):
            yield site
    finally:
        cluster.close()


@pytest.fixture
def page(browser: Browser, site: Site, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A fresh tab on the site; the mark ``browser_options`` sets special options of it."""
    context = tabs(browser, request, site.admin.http_address)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    yield page
    context.close()
    # A complaint of the browser (a blocked script, an exception) is a fault even if the page looks right. A
    # refusal from the server, or a request that the test aborts, is not a fault.
    assert [problem for problem in problems if not problem.startswith("Failed to load resource")] == []


class _traffic:  # noqa: N801 - reads as the statement it is used in
    """Publishes and consumes on its own event loop inside the ``with`` block."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)
        self.handled = 0

    def __enter__(self) -> None:
        self._thread.start()
        wait_until(lambda: self.handled, "messages flow")

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._flow())

    async def _flow(self) -> None:
        addresses = [nsqd.tcp_address for nsqd in self._site.nsqds]
        consumer = Consumer(
            "orders", "billing", self._handle, nsqd_addresses=addresses, config=Config(max_in_flight=20)
        )
        producers = [Producer(address) for address in addresses]
        await consumer.start()
        while not self._stop.is_set():
            for producer in producers:
                # A test drains one of them for a moment.
                with suppress(ProtocolError, ConnectionError):
                    await producer.publish("orders", b"one more")
            try:
                async with asyncio.timeout(len(producers) / PUBLISHED_PER_SECOND):
                    await self._stop.wait()
            except TimeoutError:
                continue
        await consumer.close()
        for producer in producers:
            await producer.close()

    def _handle(self, _: object) -> None:
        self.handled += 1
