"""The pages in a real browser: they show traffic, refresh their statistics, and run actions."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.support.site import ask, frozen, submit

pytestmark = pytest.mark.browser

UNKNOWN = "\N{EN DASH}"  # shown while a figure is not known yet


def number(text):
    return float(text.replace(",", ""))


def tile(page, label):
    return page.locator(f'[data-key="tile-{label}"] dd')


def test_pages_show_message_flow(page, site):
    page.goto("/")
    expect(page.locator('tr[data-key="orders"]')).to_contain_text("audit")
    expect(tile(page, "Messages / s")).not_to_have_text(UNKNOWN)
    assert number(tile(page, "Messages / s").inner_text()) > 0

    page.get_by_role("link", name="orders", exact=True).click()
    expect(page.locator("h1")).to_contain_text("orders")
    expect(tile(page, "Messages / s")).not_to_have_text(re.compile(f"^({UNKNOWN}|0)$"))

    page.get_by_role("link", name="billing").first.click()
    expect(tile(page, "Out / s")).not_to_have_text(re.compile(f"^({UNKNOWN}|0)$"))
    expect(page.get_by_role("region", name="Consumers").locator("tbody tr")).to_have_count(2)

    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Nodes").click()
    expect(page.locator(".badge-good").first).to_have_text("healthy")
    page.get_by_role("link", name=site.nsqds[0].http_address).click()
    # Other tests also create topics on this node, in any order.
    expect(page.locator("tr.leaf").filter(has_text="audit").first).to_be_visible()


def test_statistics_change_without_reload(page):
    page.goto("/topics/orders")
    page.evaluate("window.sameDocument = true")
    before = tile(page, "Messages").inner_text()
    time_before = page.locator("#statistics-time").inner_text()

    expect(tile(page, "Messages")).not_to_have_text(before, timeout=8000)

    assert number(tile(page, "Messages").inner_text()) > number(before)
    assert page.locator("#statistics-time").inner_text() != time_before
    assert page.evaluate("window.sameDocument")


def test_paused_page_does_not_change_until_resumed(page):
    page.goto("/topics/orders")
    page.get_by_role("button", name="Pause updates").click()
    stood = tile(page, "Messages").inner_text()
    with pytest.raises(AssertionError):
        expect(tile(page, "Messages")).not_to_have_text(stood, timeout=3000)

    page.get_by_role("button", name="Resume", exact=True).click()

    expect(tile(page, "Messages")).not_to_have_text(stood, timeout=8000)


def test_refresh_keeps_focus_filter_and_scroll_position(page, site):
    for count in range(40):
        ask(site.admin, "POST", "/api/topics", json.dumps({"topic": f"filler-{count}"}))
    page.goto("/")
    page.get_by_label("Filter").fill("filler")
    expect(page.locator(".table-box tbody tr")).to_have_count(40)
    page.evaluate("window.scrollTo(0, 400)")
    shown = page.locator("#statistics-time").inner_text()

    expect(page.locator("#statistics-time")).not_to_have_text(shown, timeout=8000)

    assert page.get_by_label("Filter").input_value() == "filler"
    assert page.evaluate("document.activeElement.id") == "filter"
    assert page.evaluate("window.scrollY") == 400
    assert "q=filler" in page.url


def test_refresh_preserves_form_input(page):
    fields = {"Topic": "fresh", "Channel optional": "a"}
    page.goto("/topics")
    form = page.locator("form").filter(has=page.get_by_label(next(iter(fields)), exact=True))
    for label, text in fields.items():
        form.get_by_label(label, exact=True).fill(text)
    shown = page.locator("#statistics-time").inner_text()
    expect(page.locator("#statistics-time")).not_to_have_text(shown)

    assert {label: form.get_by_label(label, exact=True).input_value() for label in fields} == fields


def test_dialog_can_be_left_and_deleting_needs_name(page, site):
    site.fill("precious", "a")
    page.goto("/topics/precious")
    page.get_by_role("link", name="Delete…").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("link", name="Delete…")).to_be_focused()

    page.get_by_role("link", name="Delete…").click()
    expect(page.get_by_label("Type precious to confirm")).to_be_focused()
    page.keyboard.type("precious")
    page.keyboard.press("Enter")

    expect(page.locator("[data-note]")).to_contain_text("Topic precious was deleted on")
    assert "precious" not in site.admin.get("/api/topics")["topics"]


def test_page_reports_lost_nsqadmin_and_recovers(page, site):
    page.goto("/topics/orders")
    expect(page.locator("#live")).to_have_attribute("data-state", "on")
    page.route("**/topics/orders", lambda route: route.abort())
    expect(page.locator("#live")).to_contain_text("nsqadmin does not answer; statistics of", timeout=8000)

    page.unroute("**/topics/orders")

    expect(page.locator("#live")).to_have_attribute("data-state", "on", timeout=8000)
    expect(page.locator("#live")).not_to_contain_text("does not answer")


def test_silent_node_appears_on_open_page(page, site):
    page.goto("/topics/orders")
    card = page.locator(".card").filter(has_text=f"nsqd {site.nsqds[1].http_address} is unreachable")
    with frozen(site.nsqds[1]):
        expect(card).to_be_visible(timeout=15000)
    expect(card).to_have_count(0, timeout=15000)


def test_form_of_another_site_is_refused(page, site):
    site.fill("shielded", "a")
    page.goto(f"http://localhost:{site.admin.http_port}/")
    body = f"""
        <form method=post action="http://{site.admin.http_address}/action">
        <input name=action value=pause><input name=topic value=shielded><button>go</button></form>"""
    page.route("**/evil", lambda route: route.fulfill(body=body, content_type="text/html"))
    page.goto(f"http://localhost:{site.admin.http_port}/evil")

    with page.expect_response("**/action") as refused:
        page.get_by_role("button", name="go").click()

    assert refused.value.status == 403
    assert not site.admin.get("/api/topics/shielded")["paused"]
    assert submit(site.admin, action="pause", topic="shielded").status == 303
