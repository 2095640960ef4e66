"""Signing in and out in a browser, and what needs a sign-in: tombstoning a topic, dismissing a node."""

import asyncio
import threading
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from devcluster.layout import CLIENT_ID, PEOPLE
from devcluster.provider import provider
from tests.browser.accessibility import faults_of
from tests.support.processes import Cluster
from tests.support.site import build_site

pytestmark = pytest.mark.browser


@contextmanager
def serving(secret):
    """The provider of ``./run --sign-in`` on its own event loop; yields its address."""
    loop, stop, told = asyncio.new_event_loop(), asyncio.Event(), []
    begun = threading.Event()

    async def serve():
        async with provider(secret) as one:
            told.append(one.issuer)
            begun.set()
            await stop.wait()

    def run():
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert begun.wait(30)
        yield told[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    (folder / "secret").write_text("shared secret")
    cluster = Cluster(folder / "cluster")
    try:
        with serving("shared secret") as issuer:
            yield build_site(
                cluster,
                f"--oidc-issuer={issuer}",
                f"--oidc-client-id={CLIENT_ID}",
                f"--oidc-client-secret-file={folder / 'secret'}",
                *(f"--role={role}:group={role}s" for _, role in PEOPLE),
            )
    finally:
        cluster.close()


def sign_in(page, name, path="/topics"):
    page.goto(path)
    expect(page.get_by_role("heading", name="Who are you?")).to_be_visible()
    page.get_by_role("link", name=name).click()
    expect(page.get_by_text(f"Signed in as {name}")).to_be_visible()


def fill(site, topic):
    for nsqd in site.nsqds:
        if nsqd.is_running():
            nsqd.post(f"/topic/create?topic={topic}")
            nsqd.post(f"/channel/create?topic={topic}&channel=a")
            nsqd.post(f"/pub?topic={topic}", b"one")


def test_sign_in_leads_to_wanted_page_with_role_until_sign_out(page, site):
    fill(site, "signed")
    sign_in(page, "otto", "/topics/signed")

    assert page.url.endswith("/topics/signed")
    expect(page.get_by_role("link", name="Pause…")).to_be_visible()
    expect(page.get_by_role("link", name="Delete…")).to_have_count(0)
    assert faults_of(page) == []
    page.locator("details.user summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="You are signed out")).to_be_visible()
    page.goto("/topics/signed")
    expect(page.get_by_role("heading", name="Who are you?")).to_be_visible()
    page.get_by_role("link", name="vera").click()
    expect(page.get_by_text("Read-only: your role is viewer")).to_be_visible()


@pytest.mark.browser_options(java_script_enabled=False)
def test_sign_in_works_without_javascript(page, site):
    fill(site, "plain")
    sign_in(page, "anna", "/topics/plain")

    expect(page.get_by_role("link", name="Delete…").first).to_be_visible()


def test_down_node_is_listed_until_dismissed(page, site):
    fill(site, "missed")
    gone = site.nsqds[1]
    sign_in(page, "otto", f"/nodes/{gone.http_address}")
    expect(page.get_by_role("link", name="missed", exact=True)).to_be_visible(timeout=15000)
    gone.kill()
    page.goto("/")
    problem = page.locator(".card").filter(has_text=f"nsqd {gone.http_address} is down")
    expect(problem).to_contain_text("unavailable until it is back", timeout=30000)
    problem.get_by_role("link", name="Remove node…").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove nsqd").click()

    expect(page.locator("[data-note]")).to_contain_text(
        f"nsqd {gone.http_address} was removed from the pages"
    )
    expect(problem).to_have_count(0)
    gone.start()  # other tests of this site need it
