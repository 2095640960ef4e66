"""One action for many topics."""

from urllib.parse import urlencode

from nsqclient.wire.durations import MILLISECOND
from tests.support.stub_site import stub_site

NAMES = ["topic.0000.events", "topic.0002.events"]
FORM = {"Content_Type": "application/x-www-form-urlencoded"}


async def submit(site, **fields):
    return await site.ask("POST", "/bulk", urlencode(fields, doseq=True), **FORM)


async def test_a_selection_is_explained_confirmed_and_changed_on_every_node():
    async with stub_site(nodes=3, topics=4) as site:
        listed = await site.get("/topics")
        question = await submit(site, action="pause", topic=NAMES)
        before = [path for node in site.nodes for path in node.posted]
        done = await submit(site, action="pause", topic=NAMES, confirmed="yes")
        result = await site.follow(done)
        posted = [path for node in site.nodes for path in node.posted]
        deeds = (await site.get("/audit?format=json")).json()["changes"]

    assert 'aria-label="Select topic.0002.events"' in listed.html
    assert "Pause 2 topics?" in question.text
    assert before == []
    assert posted == ["/topic/pause"] * 6
    assert "2 topics of 2 were paused." in result.text
    assert sorted(deed["topic"] for deed in deeds) == NAMES


async def test_deleting_needs_the_number_and_says_by_node_where_it_was_not_done():
    limits = {"http_client_request_timeout": 300 * MILLISECOND}
    async with stub_site(nodes=2, topics=4, **limits) as site:
        await site.get("/")
        unsure = await submit(site, action="delete", topic=NAMES, confirmed="yes", typed="3")
        posted = [path for node in site.nodes for path in node.posted]
        site.nodes[1].frozen.clear()
        done = await submit(site, action="delete", topic=NAMES, confirmed="yes", typed="2")
        result = await site.follow(done)

    assert unsure.status == 422
    assert posted == []
    assert "2 topics of 2 were deleted." in result.text
    assert f"{site.address(1)} does not answer and keeps what it holds of 2 topics" in result.text


async def test_who_may_not_change_one_of_them_changes_none():
    async with stub_site(roles=("viewer:*", "operator:user=bob:topic.0000*")) as site:
        bob = {"X_Forwarded_User": "bob"}
        body = urlencode({"action": "pause", "topic": NAMES, "confirmed": "yes"}, doseq=True)
        both = await site.ask("POST", "/bulk", body, **FORM, **bob)
        foreign = await site.ask(
            "POST", "/bulk", body.replace("0002", "0000"), **FORM, **bob, Sec_Fetch_Site="cross-site"
        )
        none = await submit(site, action="pause", topic=[])
        listed = await site.get("/topics", **bob)
        posted = [path for node in site.nodes for path in node.posted]

    assert (both.status, foreign.status, none.status) == (403, 403, 400)
    assert posted == []
    assert "Select topic.0000.events" in listed.html
    assert "Select topic.0002.events" not in listed.html
