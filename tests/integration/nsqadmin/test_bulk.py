"""One action for many topics or channels."""

from tests.support.nsqd_http import set_policy
from tests.support.site import follow, submit
from tests.support.stub_site import SOON_SILENT, stub_site

NAMES = ["topic.0000.events", "topic.0002.events"]


async def test_selection_is_explained_confirmed_and_changed_on_every_node():
    async with stub_site(nodes=3, topics=4) as site:
        listed = await site.get("/topics")
        question = await site.submit(action="pause", pick=NAMES, confirmed="")
        before = [path for node in site.nodes for path in node.posted]
        done = await site.submit(action="pause", pick=NAMES)
        result = await site.follow(done)
        posted = [path for node in site.nodes for path in node.posted]
        entries = (await site.get("/audit?format=json")).json()["changes"]

    assert 'aria-label="Select topic.0002.events"' in listed.html
    assert "Pause 2 topics?" in question.text
    assert before == []
    assert posted == ["/topic/pause"] * 6
    assert "2 topics of 2 were paused." in result.text
    assert sorted(entry["topic"] for entry in entries) == NAMES


async def test_bulk_delete_needs_number_and_names_nodes_that_failed():
    async with stub_site(nodes=2, topics=4, **SOON_SILENT) as site:
        await site.get("/")
        unsure = await site.submit(action="delete", pick=NAMES, typed="3")
        posted = [path for node in site.nodes for path in node.posted]
        site.nodes[1].frozen.clear()
        done = await site.submit(action="delete", pick=NAMES, typed="2")
        result = await site.follow(done)

    assert unsure.status == 422
    assert posted == []
    assert "2 topics of 2 were deleted." in result.text
    assert f"{site.address(1)}: unknown: timed out" in result.text
    assert f"{site.address(1)} was not reached: 1 topic did not change there" in result.text


async def test_action_refused_by_every_node_is_not_counted_as_done():
    async with stub_site(nodes=2, topics=4) as site:
        await site.get("/")
        for node in site.nodes:
            node.answer = refusing(node.answer, NAMES[1])
        done = await site.submit(action="delete", pick=NAMES, typed="2")
        result = await site.follow(done)
        entries = (await site.get("/audit?format=json")).json()["changes"]

    assert "1 topic of 2 was deleted." in result.text
    assert f"{site.address(0)}: FORBIDDEN (1 topic)" in result.text
    assert {entry["topic"]: entry["ok"] for entry in entries} == {NAMES[0]: True, NAMES[1]: False}


def refusing(usual, topic):
    """Let a node refuse all changes to *topic*."""

    def answer(method, path, query):
        if method == "POST" and query["topic"] == topic:
            return 403, b'{"message":"FORBIDDEN"}'
        return usual(method, path, query)

    return answer


async def test_selection_with_one_forbidden_topic_changes_nothing():
    async with stub_site(roles=("viewer:*", "operator:user=bob:topic.0000*")) as site:
        bob = {"X_Forwarded_User": "bob"}
        both = await site.submit(headers=bob, action="pause", pick=NAMES)
        foreign = await site.submit(
            headers=bob | {"Sec_Fetch_Site": "cross-site"}, action="pause", pick=NAMES[:1]
        )
        none = await site.submit(action="pause", pick=[], confirmed="")
        listed = await site.get("/topics", **bob)
        posted = [path for node in site.nodes for path in node.posted]

    assert (both.status, foreign.status, none.status) == (403, 403, 400)
    assert posted == []
    assert "Select topic.0000.events" in listed.html
    assert "Select topic.0002.events" not in listed.html


CHANNELS = ["topic.0000.events/billing", "topic.0000.events/search"]


async def test_selected_channels_are_changed_together_with_one_summary_by_node():
    async with stub_site(nodes=2, topics=2) as site:
        listed = await site.get("/topics/topic.0000.events")
        question = await site.submit(action="empty", pick=CHANNELS, confirmed="")
        asked = [path for node in site.nodes for path in node.posted]
        done = await site.submit(action="empty", pick=CHANNELS)
        result = await site.follow(done)
        posted = [path for node in site.nodes for path in node.posted]
        entries = (await site.get("/audit?format=json")).json()["changes"]
        addresses = sorted(site.address(number) for number in range(2))

    assert 'value="topic.0000.events/search"' in listed.html
    assert "Empty 2 channels?" in question.text
    assert asked == []
    assert posted == ["/channel/empty"] * 4
    assert done.headers["Location"] == "/topics/topic.0000.events"
    assert "2 channels of 2 were emptied." in result.text
    assert f"2 channels on {', '.join(addresses)}" in result.text
    assert sorted(entry["channel"] for entry in entries) == ["billing", "search"]


def test_bulk_seek_shows_backlog_before_confirmation(site):
    topic = "replayed"
    for nsqd in site.nsqds:
        set_policy(nsqd, f"^{topic}$", name=topic, retain_time="1h")
    site.fill(topic, "a", "b", messages=3)
    for nsqd in site.nsqds:
        for channel in "ab":
            nsqd.post(f"/channel/empty?topic={topic}&channel={channel}")
    channels = [f"{topic}/a", f"{topic}/b"]

    first = submit(site.admin, action="seek", pick=channels, confirmed="")
    nonsense = submit(site.admin, action="seek", pick=channels, to="last tuesday", confirmed="")
    shown = submit(site.admin, action="seek", pick=channels, to="earliest", confirmed="")
    unseen = submit(site.admin, action="seek", pick=channels, to="earliest", shown="latest")
    before = [nsqd.get(f"/stats?format=json&topic={topic}")["topics"][0]["channels"] for nsqd in site.nsqds]
    done = submit(site.admin, action="seek", pick=topic, to="earliest", shown="earliest")
    result = follow(site.admin, done)
    after = [nsqd.get(f"/stats?format=json&topic={topic}")["topics"][0]["channels"] for nsqd in site.nsqds]

    assert "Seek 2 channels?" in first.text
    assert nonsense.status == 422
    assert "→ 12" in shown.text
    assert "→ 12" in unseen.text
    assert {one["depth"] for node in before for one in node} == {0}
    assert "2 channels of 2 were set to earliest." in result.text
    assert [[one["depth"] for one in node] for node in after] == [[3, 3], [3, 3]]


async def test_bulk_action_without_selection_is_page_for_browsers():
    async with stub_site(nodes=1) as site:
        page = await site.submit(headers={"Accept": "text/html"}, action="delete", confirmed="")
        program = await site.submit(action="delete", confirmed="")

    assert (page.status, program.status) == (400, 400)
    assert "Select at least one row" in page.text
    assert program.json() == {"message": "INVALID_SELECTION"}
