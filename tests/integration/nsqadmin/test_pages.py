"""The pages and their forms, as a browser without JavaScript gets them."""

import re
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.site import ask, build_site, follow, submit
from tests.support.stub_site import stub_site

LISTS = ("channels", "nodes")


def page(site, path):
    answer = ask(site.admin, "GET", path)
    assert answer.status == 200, answer.text
    return answer.text


def topic_names(site, query):
    body = ask(site.admin, "GET", f"/topics?{query}").body.decode()
    return re.findall(r'<tr data-key="([^"]+)"', body)


def test_index_shows_statistics_of_each_topic(site):
    site.fill("pages.row", "a", messages=600)

    text = page(site, "/topics?q=pages.row")

    # topic, state, rate, depth, oldest, when empty, in flight, deferred, consumers, messages, channels
    assert re.search(r"pages\.row no consumers \S+ 1,200 \d+ s \u2013 0 0 0 1,200 a ", text)


async def test_sorted_or_filtered_list_shows_its_first_page():
    async with stub_site(nodes=9, topics=1, channels=60) as site:
        page = (await site.get("/topics/topic.0000.events?channels=2&nodes=2&channels-sort=depth")).html

    links = [parse_qs(urlsplit(unescape(link)).query) for link in re.findall(r'href="([^"]*)"', page)]
    sorts = {name: [link for link in links if link.get(f"{name}-sort") == ["consumers"]] for name in LISTS}
    forms = {name: re.search(rf'aria-label="Find {name}">(.*?)</form>', page, re.DOTALL)[1] for name in LISTS}
    kept = {name: set(re.findall(r'type="hidden" name="([^"]*)"', form)) for name, form in forms.items()}

    assert [(link.get("channels"), link.get("nodes")) for link in sorts["channels"]] == [(None, ["2"])]
    assert [(link.get("channels"), link.get("nodes")) for link in sorts["nodes"]] == [(["2"], None)]
    assert kept == {"channels": {"nodes", "channels-sort"}, "nodes": {"channels", "channels-sort"}}
    # The script that filters while one types does the same.
    assert re.findall(r'data-page="([^"]*)"', page) == list(LISTS)


def test_names_with_ephemeral_are_escaped_in_links(site):
    site.fill("pages.temp#ephemeral", "c#ephemeral")

    body = ask(site.admin, "GET", "/").body

    assert b'href="/topics/pages.temp%23ephemeral"' in body
    assert b'href="/topics/pages.temp%23ephemeral/c%23ephemeral"' in body
    assert "Channel c#ephemeral" in page(site, "/topics/pages.temp%23ephemeral/c%23ephemeral")


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/topics/pages.unknown", "There is no topic pages.unknown."),
        ("/topics/pages.known/nope", "Topic pages.known has no channel nope."),
        ("/nodes/127.0.0.1:1", "No nsqd of this cluster is reached at 127.0.0.1:1."),
        ("/action?action=fly&topic=x", "There is nothing here."),
    ],
)
def test_unknown_resource_gets_page_with_links(site, path, sentence):
    site.fill("pages.known")

    answer = ask(site.admin, "GET", path)

    assert answer.status == 404
    assert sentence in answer.text
    assert b'href="/nodes"' in answer.body


def test_assets_have_name_that_changes_with_content(site):
    body = ask(site.admin, "GET", "/").body.decode()
    link = re.search(r'href="(/static/admin\.css\?v=\w+)"', body)[1]

    asset = ask(site.admin, "GET", link)
    bare = ask(site.admin, "GET", "/static/admin.css")
    missing = ask(site.admin, "GET", "/static/nope.css")

    assert asset.headers["Content-Type"] == "text/css; charset=utf-8"
    assert "immutable" in asset.headers["Cache-Control"]
    assert bare.headers["Cache-Control"] == "no-cache"
    assert (missing.status, missing.body) == (404, b"NOT_FOUND")


# --- actions without JavaScript


def test_action_is_explained_done_and_reported(site):
    site.fill("pages.pause", "a", messages=2)

    question = page(site, "/action?action=pause&topic=pages.pause&channel=a")
    done = submit(site.admin, action="pause", topic="pages.pause", channel="a")
    result = follow(site.admin, done)

    assert "Pause channel a of topic pages.pause?" in question
    assert "Waiting and new messages are kept (4 messages)" in question
    assert done.headers["Location"] == "/topics/pages.pause/a"
    assert "Channel a of topic pages.pause was paused on 2 nsqds." in result.text
    assert "Resume…" in result.text
    # The note is shown only once, because the answer deletes its cookie.
    assert "Max-Age=0" in result.headers["Set-Cookie"]


def test_tombstone_leads_back_to_node(site):
    site.fill("pages.tomb", "a", messages=1)
    address = site.nsqds[1].http_address

    question = page(site, f"/action?action=tombstone&topic=pages.tomb&node={address}")
    done = submit(site.admin, action="tombstone", topic="pages.tomb", node=address, typed="pages.tomb")

    assert f"Tombstone topic pages.tomb on {address}?" in question
    assert done.headers["Location"] == f"/nodes/{address}"
    assert f"Topic pages.tomb was deleted on {address}" in follow(site.admin, done).text


def test_registered_topic_without_nodes_has_page(site):
    submit(site.admin, action="create", topic="pages.idle", channel="waiting")

    text = page(site, "/topics/pages.idle")

    assert "No nsqd offers this topic now" in text
    assert "Registered channels: waiting." in text


def test_everything_stays_below_base_path(cluster):
    site = build_site(cluster, "--base-path=nsq/", prefix="/nsq")
    site.fill("orders", "a")

    index = ask(site.admin, "GET", "/nsq")
    done = submit(site.admin, "/nsq", action="pause", topic="orders", channel="a")

    assert index.status == 200
    links = re.findall(r'(?:href|src|action)="(/[^"]*)"', index.body.decode())
    assert links
    assert all(link == "/nsq" or link.startswith(("/nsq/", "/nsq?")) for link in links)
    assert done.headers["Location"] == "/nsq/topics/orders/a"
    assert "Path=/nsq" in done.headers["Set-Cookie"]
    assert ask(site.admin, "GET", "/nsq/ping").body == b"OK"
    assert ask(site.admin, "GET", "/nsq/api/topics").status == 200
    assert ask(site.admin, "GET", "/").status == 404
    assert ask(site.admin, "GET", "/nsq/").status == 200


@pytest.mark.parametrize("name", [".", ".."])
def test_topic_named_like_dot_segment_has_links_that_browsers_keep(site, name):
    site.fill(name, name)

    links = {
        unescape(link)
        for link in re.findall(r'href="([^"]*)"', ask(site.admin, "GET", "/topics").body.decode())
    }
    channel = ask(site.admin, "GET", f"/topics/~{name}/~{name}")

    assert f"/topics/~{name}" in links
    assert f"Topic {name} " in page(site, f"/topics/~{name}")
    assert f"Channel {name} " in channel.text


async def test_unknown_path_is_page_for_browsers_and_json_for_programs():
    async with stub_site(nodes=1) as site:
        browser = await site.get("/nosuch/path", Accept="text/html,*/*")
        program = await site.get("/nosuch/path", Accept="*/*")
        as_json = await site.get("/nosuch?format=json", Accept="text/html")

    assert browser.status == program.status == as_json.status == 404
    assert "There is nothing here." in browser.text
    assert "Retrying" not in browser.text
    assert program.json() == as_json.json() == {"message": "NOT_FOUND"}
