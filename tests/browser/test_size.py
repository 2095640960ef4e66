"""Long lists in a real browser: paged and sorted, by keyboard and without JavaScript."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.accessibility import faults_of
from tests.support.processes import Cluster
from tests.support.tabs import tabs

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """An nsqadmin in front of three stubs of an nsqd with 120 topics, 5 channels and 1,200 consumers each."""
    stub = subprocess.Popen(
        [sys.executable, "-m", "tests.support.stub_cluster", "--nodes=3", "--topics=120"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    cluster = Cluster(tmp_path_factory.mktemp("large"))
    try:
        places = json.loads(stub.stdout.readline())
        flags = [f"--lookupd-http-address={address}" for address in places["lookupds"]]
        yield cluster.nsqadmin("--collect-interval=500ms", *flags), places["nsqds"]
    finally:
        cluster.close()
        stub.terminate()
        stub.wait()
        stub.stdout.close()


@pytest.fixture
def page(browser, large, request):
    context = tabs(browser, request, large[0].http_address)
    page = context.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    context.close()
    assert problems == []


def rows(page):
    return page.locator(".table-box table").first.locator("tbody tr")


def test_list_of_topics_is_walked_by_keyboard(page):
    page.goto("/")
    expect(rows(page)).to_have_count(50)

    page.get_by_role("link", name="Next topics").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("navigation", name="Pages of topics")).to_contain_text("51 to 100 of 120")
    page.get_by_label("Page of topics").focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("3")
    page.keyboard.press("Enter")

    expect(rows(page)).to_have_count(20)
    assert "page=3" in page.url
    expect(page.get_by_role("navigation", name="Pages of topics")).to_contain_text("101 to 120 of 120")


def test_typing_filter_leads_back_to_the_first_page(page):
    page.goto("/?page=3")
    page.get_by_label("Filter").fill("topic.001")

    expect(rows(page)).to_have_count(10)
    assert "page" not in page.url


def shown_in_the_end(page, there, text):
    """Reload until *there* shows the text: without JavaScript a page does not add nodes that answer late."""
    for _ in range(20):
        page.wait_for_load_state()
        if there.count() and text in there.inner_text():
            return
        page.wait_for_timeout(500)
        page.reload()
    expect(there).to_contain_text(text)


@pytest.mark.browser_options(java_script_enabled=False)
def test_consumers_are_paged_without_javascript(page, large):
    page.goto(f"/nodes/{large[1][0]}")
    consumers = page.get_by_role("navigation", name="Pages of consumers")
    shown_in_the_end(page, consumers, "1 to 50 of 1,200")
    consumers.get_by_role("link", name="Next").click()
    shown_in_the_end(page, consumers, "51 to 100 of 1,200")
    page.get_by_role("navigation", name="Pages of topics").get_by_role("link", name="Next").click()

    # Each of the page's two lists is paged by itself.
    shown_in_the_end(page, consumers, "51 to 100 of 1,200")
    expect(page.get_by_role("navigation", name="Pages of topics")).to_contain_text("51 to 100 of 120")


def test_double_click_opens_one_dialog(page):
    page.goto("/topics/topic.0001.events")
    page.get_by_role("link", name="Empty…").dblclick()

    expect(page.get_by_role("dialog")).to_have_count(1)
    page.wait_for_load_state("networkidle")
    expect(page.get_by_role("dialog")).to_have_count(1)


def test_page_json_equals_page_statistics(page):
    page.goto("/?sort=name&page=2")
    page.get_by_role("link", name="This page as JSON").click()

    shown = json.loads(page.locator("pre").inner_text())
    assert shown["topics"][0]["topic_name"] == "topic.0050.events"
    assert (shown["topics_first"], shown["topics_total"], shown["topics"][0]["client_count"]) == (51, 120, 30)


@pytest.mark.parametrize("path", ["/", "/topics/topic.0001.events", "/topics/topic.0001.events/billing"])
def test_tiles_never_stand_alone_in_row(page, path):
    page.goto(path)

    for width in (1280, 1000, 820, 600, 360):
        page.set_viewport_size({"width": width, "height": 800})
        tops = page.eval_on_selector_all(".tile", "tiles => tiles.map(tile => tile.offsetTop)")
        assert len({tops.count(top) for top in tops}) == 1, width


@pytest.mark.browser_options(viewport={"width": 360, "height": 700})
@pytest.mark.parametrize("path", ["/", "/topics/topic.0001.events", "/nodes"])
def test_narrow_screen_shows_name_state_and_depth(page, path):
    page.goto(path)

    heads = page.locator(".table-box table").first.locator("thead th:visible")

    assert [text.strip() for text in heads.all_inner_texts()][1:] == ["State", "Depth"]
    width, window = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert width <= window


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    "path", ["/", "/topics/topic.0001.events", "/topics/topic.0001.events/billing", "/nodes"]
)
def test_numbers_stay_on_one_line_and_rows_are_unique(page, path, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(path)

    broken, twice, heights = page.evaluate(
        """() => {
          const lines = (cell) => {
            const tops = [];
            const words = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
            while (words.nextNode()) {
              const range = document.createRange();
              range.selectNodeContents(words.currentNode);
              for (const box of range.getClientRects()) if (box.width > 1) tops.push(box.top);
            }
            return tops.length && Math.max(...tops) - Math.min(...tops) > 10 ? 2 : 1;
          };
          const all = [...document.querySelectorAll("tbody td.num, tfoot td.num, .tile dd")];
          const statistics = all.filter((one) => one.checkVisibility());
          const rows = [...document.querySelectorAll("table")].map((table) =>
            [...table.tBodies].flatMap((body) => [...body.rows].map((row) => row.innerText)));
          return [
            statistics.filter((one) => lines(one) > 1).map((one) => one.innerText),
            rows.flatMap((texts) => texts.filter((text, at) => texts.indexOf(text) !== at)),
            [...document.querySelectorAll(".lines tbody tr")].map((row) => row.offsetHeight),
          ];
        }"""
    )

    assert broken == []
    assert twice == []
    # In a wide window each row is one line.
    assert width < 1000 or max(heights) < 48


@pytest.mark.parametrize("path", ["/", "/nodes/NODE", "/topics/topic.0001.events/billing", "/nodes"])
def test_long_lists_have_no_accessibility_fault(page, large, path):
    page.goto(path.replace("NODE", large[1][0]))

    assert faults_of(page) == []
