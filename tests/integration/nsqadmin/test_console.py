"""Search, the user menu, incomplete sums, and live messages."""

from tests.support.stub_site import SOON_SILENT, stub_site

TOPIC = "topic.0001.events"


async def test_search_finds_topics_channels_nodes_and_actions_of_person():
    async with stub_site(nodes=1, topics=2, roles=("viewer:*", "operator:user=otto")) as site:
        await site.round()
        found = (await site.get("/search?q=0001&format=json")).json()
        node = (await site.get(f"/search?q={site.address(0)}&format=json")).json()
        may = (await site.get("/search?q=pause 0001&format=json", X_Forwarded_User="otto")).json()
        may_not = (await site.get("/search?q=pause 0001&format=json")).json()
        page = await site.get("/search?q=<script>0001")

    assert [one["name"] for one in found["topics"]] == [TOPIC]
    assert f"{TOPIC} / billing" in [one["name"] for one in found["channels"]]
    assert [one["name"] for one in node["nodes"]] == [site.address(0)]
    assert f"pause {TOPIC}" in [one["name"] for one in may["actions"]]
    assert may_not["actions"] == []
    assert "<script>0001" not in page.html


async def test_header_names_user_and_role():
    async with stub_site(nodes=1, roles=("viewer:*", "operator:user=otto")) as site:
        page = await site.get("/", X_Forwarded_User="otto")
        anonymous = await site.get("/")

    assert "otto operator" in page.text
    assert "operator" not in anonymous.text


async def test_metric_that_lacks_node_says_so_in_place():
    def hold(answer):
        for topic in answer["topics"]:
            topic["channels"][0]["depth"] = 5

    async with stub_site(nodes=2, topics=2, **SOON_SILENT) as site:
        for node in site.nodes:
            node.edit = hold
        await site.round()
        await site.round()
        site.nodes[1].frozen.clear()

        async def lacks():
            pages = [await site.get(path) for path in (f"/topics/{TOPIC}", "/")]
            return all(f"on {site.address(1)}, unreachable" in page.text for page in pages)

        await site.until(lacks, "the pages say what they lack")
        overview = await site.get("/")
        as_json = (await site.get("/?format=json")).json()
        channel = await site.get(f"/topics/{TOPIC}/billing")
        await site.submit(action="pause", topic=TOPIC, channel="billing")
        (entry,) = (await site.get("/audit?format=json")).json()["changes"]
        site.nodes[1].frozen.set()

    assert "Nodes up 1 of 2" in overview.text
    assert " Nodes 2 " in channel.text
    # The silent node's messages are still there, so the pause has not changed the depth.
    assert entry["before"]["depth"] == entry["after"]["depth"] == 10
    assert (as_json["nodes_up"], as_json["nodes"]) == (1, 2)


async def test_dead_letters_of_channel_that_has_none_are_empty_list():
    async with stub_site(nodes=1, topics=2) as site:
        await site.round()
        page = await site.get(f"/messages?topic={TOPIC}&channel=billing&state=dead")

    assert page.status == 200
    assert "No message of this channel became a dead letter." in page.text
    assert "In flight" in page.text


async def test_live_tail_is_page_that_does_not_hold_still():
    async with stub_site(nodes=1, topics=2) as site:
        await site.round()
        address = f"/messages?topic={TOPIC}&channel=billing&state=dead"
        still, tail = await site.get(address), await site.get(f"{address}&tail=1")

    assert "data-still" in still.html
    assert "data-still" not in tail.html
    assert "Stop live tail" in tail.text


async def test_audit_links_to_changed_resource():
    async with stub_site(nodes=1, topics=2) as site:
        await site.round()
        await site.submit(action="pause", topic=TOPIC, channel="billing")
        page = await site.get("/audit")

    assert f'<a href="/topics/{TOPIC}/billing">{TOPIC}/billing</a>' in page.html
