"""Operators' actions in a browser: find messages, publish, select, mute, drain, read the audit."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.accessibility import faults_of
from tests.browser.addresses import addresses_of

# Some tests go through all pages.
pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture
def paths(site):
    return addresses_of(site)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_no_accessibility_fault(page, paths, scheme):
    faults = {}
    for path in paths:
        page.goto(path)
        faults[path] = faults_of(page, scheme=scheme)

    assert {path: found for path, found in faults.items() if found} == {}


def test_controls_are_reached_with_tab_key_in_page_order(page, paths):
    wrong = {}
    for path in paths:
        page.goto(path)
        skipped = page.evaluate(
            """() => [...document.querySelectorAll(
                "a[href], button, input:not([type=hidden]), select, textarea, summary, .table-box"
              )].filter((one) => one.checkVisibility() && !one.disabled && one.tabIndex !== 0)
                .map((one) => one.outerHTML.slice(0, 80))"""
        )
        # An element that only looks clickable cannot be reached with the tab key.
        dead = page.locator("[onclick], [role=button]:not(button):not(a[href])").count()
        if skipped or dead:
            wrong[path] = (skipped, dead)
    page.goto("/topics/orders")
    seen = []
    for _ in range(8):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.innerText.trim()"))

    assert wrong == {}
    assert seen[:6] == ["Skip to content", "nsqadmin", "Overview", "Topics", "Nodes", "Policies"]


@pytest.mark.browser_options(java_script_enabled=False)
def test_pages_read_the_same_without_javascript(page, browser, site, paths):
    context = browser.new_context(base_url=f"http://{site.admin.http_address}")
    other = context.new_page()
    # Texts that change from one moment to the next are left out.
    heads = "thead th, .tile dt, form label:not(.pick-all), .title .actions a, .tabs a:not(:has(span))"
    wrong = {}
    # A message in flight is there at one moment and not at the next.
    for path in (one for one in paths if "in_flight" not in one):
        page.goto(path)
        other.goto(path)
        without, with_it = (one.locator(heads).all_inner_texts() for one in (page, other))
        if without != with_it:
            wrong[path] = (without, with_it)
    context.close()

    assert wrong == {}


# A wide window at 200 % zoom is the same as a window of half its width: 640.
@pytest.mark.parametrize("width", [360, 390, 640])
def test_pages_fit_phone_and_double_size_and_rows_match_their_headings(page, paths, width):
    page.set_viewport_size({"width": width, "height": 800})
    wrong = {}
    for path in paths:
        page.goto(path)
        wide, window = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        torn = page.evaluate(
            """() => [...document.querySelectorAll("table:has(thead)")].flatMap((table) => {
              const seen = (row) => [...row.cells].filter((cell) => cell.checkVisibility()).length;
              const heads = seen(table.tHead.rows[0]);
              const rows = [...table.querySelectorAll("tbody tr:not(:has(.empty))")];
              return rows.map(seen).filter((cells) => cells !== heads);
            })"""
        )
        if wide > window or torn:
            wrong[path] = (wide, torn)

    assert wrong == {}


def test_message_is_published_found_and_folded(page, site):
    site.fill("shelf", "a", messages=0)
    page.goto("/topics/shelf")
    page.locator(".actions").get_by_role("link", name="Messages", exact=True).click()
    page.get_by_role("link", name="Publish…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Body")).to_be_focused()
    dialog.get_by_label("Body").fill('{"shop": {"id": 42, "name": "<i>x</i>"}}')
    dialog.get_by_label("Headers").fill("tenant: blue")
    dialog.get_by_role("button", name="Publish").click()

    expect(page.locator("[data-note]")).to_contain_text("A message of 40 bytes was published to shelf")
    page.get_by_label("JSON").fill("shop.id=42")
    page.get_by_role("button", name="Find").click()
    page.locator("tbody th a").click()
    expect(page.locator(".body-tree")).to_contain_text("<i>x</i>")
    expect(page.get_by_role("region", name="About the message")).to_contain_text("blue")
    shop = page.locator(".body-tree details details summary")
    expect(page.get_by_text("42", exact=True)).to_be_visible()
    shop.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("42", exact=True)).to_be_hidden()
    with page.expect_download() as file:
        page.get_by_role("link", name="Download").click()
    assert file.value.path().read_bytes() == b'{"shop": {"id": 42, "name": "<i>x</i>"}}'


def test_keyboard_filters_goes_to_pages_and_lists_its_keys(page):
    page.goto("/")
    page.keyboard.press("/")
    expect(page.locator("[data-filter]")).to_be_focused()
    page.keyboard.type("or")
    expect(page).to_have_url(re.compile("q=or"))
    page.keyboard.press("Tab")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("g n")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(page.get_by_role("heading", name="Nodes", exact=True)).to_be_visible()


def test_topic_that_is_only_registered_is_deleted_on_page_of_topics(page, site):
    page.goto("/topics")
    page.get_by_label("Topic", exact=True).fill("by-hand")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("[data-note]")).to_contain_text("Topic by-hand was created.")
    idle = page.get_by_role("region", name="Inactive topics")
    expect(idle).to_contain_text("by-hand")
    assert faults_of(page) == []
    idle.get_by_role("link", name="Delete… topic by-hand").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type by-hand").fill("by-hand")
    dialog.get_by_role("button", name="Delete topic").click()
    expect(page.locator("[data-note]")).to_contain_text("Topic by-hand was deleted")
