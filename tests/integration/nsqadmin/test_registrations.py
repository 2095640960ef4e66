"""The topics that nsqlookupd lists, compared with those that nsqds hold: differences are shown first."""

import copy

from tests.support.stub_site import stub_site

TOPIC = "topic.0000.events"


def holds_more(answer):
    """An edit: the node holds a topic that no nsqlookupd lists for it."""
    if len(answer["topics"]) > 1:
        more = copy.deepcopy(answer["topics"][0])
        more["topic_name"] = "only.held"
        answer["topics"].append(more)


async def shown(site, path, text):
    async def page():
        found = await site.get(path)
        return found if text in found.text else None

    return await site.until(page, f"{path} says {text}")


async def test_registrations_without_differences_are_not_mentioned():
    async with stub_site(nodes=2) as site:
        topics, lookup, nodes = [(await site.get(path)).text for path in ("/topics", "/lookup", "/nodes")]

    assert "Registered otherwise" not in topics + lookup + nodes
    assert "Every registered topic is offered by some nsqd" in lookup
    assert "Create" in topics


async def test_topic_registered_but_held_by_no_node_is_listed_with_its_channels():
    async with stub_site(nodes=2) as site:
        await site.get("/")
        site.stubs.registered["only.listed"] = ["waiting"]
        page = await shown(site, "/topics", "Registration mismatch 1")
        told = (await site.get("/lookup?format=json")).json()

    assert page.text.index("only.listed waiting") < page.text.index(TOPIC)
    assert told["inactive"] == [{"topic": "only.listed", "channels": ["waiting"]}]


async def test_topic_without_registration_is_named_with_its_node():
    async with stub_site(nodes=3) as site:
        await site.get("/")
        site.nodes[2].edit = holds_more
        page = await shown(site, "/topics", "Registration mismatch 1")
        nodes = await shown(site, "/nodes", "only.held is held and not registered")
        told = (await site.get("/lookup?format=json")).json()
        rows = (await site.get("/nodes?format=json")).json()["nodes"]
        address = site.address(2)

    assert f"only.held {address}" in page.text
    assert f"{address} : only.held is held and not registered" in nodes.text
    assert told["unregistered"] == [{"topic": "only.held", "nodes": [address]}]
    assert rows[0]["node"] == address


async def test_address_of_counter_stays_and_overview_has_its_figure():
    async with stub_site(nodes=2) as site:
        counter = (await site.get("/counter?format=json")).json()
        overview = await site.get("/")
        told = (await site.get("/?format=json")).json()

    assert "Delivered to channels" in overview.text
    assert told["channel_message_count"] >= counter["message_count"] > 0
