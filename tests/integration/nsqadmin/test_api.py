import asyncio
import gzip
import json

import pytest

from tests.support.site import ask, build_site
from tests.support.stub_site import stub_site
from tests.support.waiting import wait_until


def call(site, method, path, body=""):
    answer = ask(site.admin, method, path, body)
    return answer.status, json.loads(answer.body)


def test_topics_are_sorted_union_of_all_nodes(site):
    site.fill("api.zebra")
    site.fill("api.ant")

    topics = site.admin.get("/api/topics")

    assert topics["message"] == ""
    assert topics["topics"] == sorted(topics["topics"])
    assert {"api.ant", "api.zebra"} <= set(topics["topics"])


def test_topic_is_added_up_over_its_nodes_and_channels(site):
    site.fill("api.sum", "a", "b", messages=3)

    topic = site.admin.get("/api/topics/api.sum")

    assert (topic["node"], topic["message_count"], topic["depth"]) == ("*", 6, 0)
    assert [node["message_count"] for node in topic["nodes"]] == [3, 3]
    assert [(channel["channel_name"], channel["depth"]) for channel in topic["channels"]] == [
        ("a", 6),
        ("b", 6),
    ]
    assert [channel["depth"] for channel in topic["nodes"][0]["channels"]] == [3, 3]
    assert topic["nodes"][0]["channels"][0]["node"] == topic["nodes"][0]["node"]


def test_channel_has_its_nodes_and_its_consumers(site):
    site.fill("api.channel", "a", messages=2)

    channel = site.admin.get("/api/topics/api.channel/a")

    assert (channel["depth"], channel["client_count"], channel["clients"]) == (4, 0, [])
    addresses = {nsqd.http_address for nsqd in site.nsqds}
    assert {node["node"] for node in channel["nodes"]} == addresses


def test_ephemeral_names_travel_encoded(site):
    site.fill("api.temp#ephemeral", "c#ephemeral", messages=1)

    channel = site.admin.get("/api/topics/api.temp%23ephemeral/c%23ephemeral")

    assert (channel["channel_name"], channel["depth"]) == ("c#ephemeral", 2)


def test_unknown_resource_is_404_with_its_code(site):
    site.fill("api.known", "a")

    assert call(site, "GET", "/api/topics/api.unknown") == (404, {"message": "TOPIC_NOT_FOUND"})
    assert call(site, "GET", "/api/topics/api.known/x") == (404, {"message": "CHANNEL_NOT_FOUND"})
    assert call(site, "GET", "/api/nodes/127.0.0.1:1") == (404, {"message": "NODE_NOT_FOUND"})
    assert call(site, "GET", "/api/search") == (404, {"message": "NOT_FOUND"})


def test_nodes_are_listed_with_their_topics(site):
    site.fill("api.listed")

    nodes = site.admin.get("/api/nodes")["nodes"]

    addresses = [f"{node['broadcast_address']}:{node['http_port']}" for node in nodes]
    assert addresses == sorted(nsqd.http_address for nsqd in site.nsqds)
    assert all({"topic": "api.listed", "tombstoned": False} in node["topics"] for node in nodes)
    assert not any(node["out_of_date"] for node in nodes)
    assert nodes[0]["remote_addresses"] == [f"{site.lookupd.http_address}/{nodes[0]['remote_address']}"]


def test_node_shows_all_it_holds(site):
    site.fill("api.held", "a", messages=5)
    address = site.nsqds[0].http_address

    node = site.admin.get(f"/api/nodes/{address}")

    (held,) = [topic for topic in node["topics"] if topic["topic_name"] == "api.held"]
    assert (held["message_count"], held["channels"][0]["depth"]) == (5, 5)
    assert (node["node"], node["total_clients"]) == (address, 0)
    assert node["total_messages"] == sum(topic["message_count"] for topic in node["topics"])


def test_counter_has_entry_for_each_channel_on_each_node(site):
    site.fill("api.counted", "a", messages=4)

    stats = site.admin.get("/api/counter")["stats"]

    for nsqd in site.nsqds:
        assert stats[f"api.counted:a:{nsqd.http_address}"] == {
            "node": nsqd.http_address,
            "topic_name": "api.counted",
            "channel_name": "a",
            "message_count": 4,
        }


def test_created_topic_is_inactive_until_the_first_publish(site):
    assert call(site, "POST", "/api/topics", '{"topic":"api.made","channel":"c"}') == (200, {"message": ""})

    assert site.admin.get("/api/topics?inactive=true")["topics"]["api.made"] == ["c"]
    made = site.admin.get("/api/topics/api.made")
    assert (made["depth"], made["nodes"], made["channels"]) == (0, [], [])


def test_channel_created_for_live_topic_appears_on_its_nodes(site):
    site.fill("api.live")

    call(site, "POST", "/api/topics", '{"topic":"api.live","channel":"new"}')

    assert [one["channel_name"] for one in site.admin.get("/api/topics/api.live")["channels"]] == ["new"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", "EOF"),
        ("x", "invalid character 'x' looking for beginning of value"),
        ("{", "unexpected EOF"),
        ("[1]", "the body is not a JSON object"),
        ('{"topic":7}', "topic is not a string"),
        ("{}", "INVALID_TOPIC"),
        ('{"topic":"a b"}', "INVALID_TOPIC"),
        ('{"topic":"a","channel":"b$"}', "INVALID_CHANNEL"),
    ],
)
def test_bad_creation_is_400_and_says_why(site, body, code):
    assert call(site, "POST", "/api/topics", body) == (400, {"message": code})


def test_pausing_and_emptying_reach_every_node(site):
    site.fill("api.queue", "a", messages=3)
    path = "/api/topics/api.queue/a"

    assert call(site, "POST", path, '{"action":"pause"}') == (200, {"message": ""})
    assert [node["paused"] for node in site.admin.get(path)["nodes"]] == [True, True]
    assert call(site, "POST", path, '{"action":"empty"}') == (200, {"message": ""})
    assert site.admin.get(path)["depth"] == 0
    assert call(site, "POST", path, '{"action":"unpause"}') == (200, {"message": ""})
    assert not site.admin.get(path)["paused"]
    call(site, "POST", "/api/topics/api.queue", '{"action":"pause"}')
    assert site.admin.get("/api/topics/api.queue")["paused"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", "EOF"),
        ("{}", "INVALID_ACTION"),
        ('{"action":"fly"}', "INVALID_ACTION"),
        ("null", "INVALID_ACTION"),
    ],
)
def test_unknown_action_is_400(site, body, code):
    assert call(site, "POST", "/api/topics/any", body) == (400, {"message": code})


def test_deleted_channel_and_topic_are_gone_everywhere(site):
    site.fill("api.gone", "a", "b")

    assert call(site, "DELETE", "/api/topics/api.gone/a") == (200, {"message": ""})
    assert call(site, "DELETE", "/api/topics/api.gone/a") == (404, {"message": "CHANNEL_NOT_FOUND"})
    assert [one["channel_name"] for one in site.admin.get("/api/topics/api.gone")["channels"]] == ["b"]
    assert call(site, "DELETE", "/api/topics/api.gone") == (200, {"message": ""})
    assert call(site, "DELETE", "/api/topics/api.gone") == (404, {"message": "TOPIC_NOT_FOUND"})
    assert "api.gone" not in site.admin.get("/api/topics")["topics"]


def test_tombstone_takes_topic_from_one_node_only(site):
    site.fill("api.moving", "a")
    first, second = (nsqd.http_address for nsqd in site.nsqds)

    assert call(site, "DELETE", f"/api/nodes/{first}", '{"topic":"api.moving"}') == (200, {"message": ""})

    assert [node["node"] for node in site.admin.get("/api/topics/api.moving")["nodes"]] == [second]
    wait_until(
        lambda: (
            "api.moving"
            not in [topic["topic_name"] for topic in site.nsqds[0].get("/stats?format=json")["topics"]]
        ),
        "the node forgets the topic",
    )


@pytest.mark.parametrize(
    ("body", "code"), [("", "INVALID_BODY"), ("x", "INVALID_BODY"), ("{}", "INVALID_TOPIC")]
)
def test_tombstone_needs_topic(site, body, code):
    path = f"/api/nodes/{site.nsqds[0].http_address}"

    assert call(site, "DELETE", path, body) == (400, {"message": code})


def test_tombstone_is_no_way_to_post_to_any_address(site):
    answer = call(site, "DELETE", "/api/nodes/127.0.0.1:9", '{"topic":"t"}')

    assert answer == (404, {"message": "NODE_NOT_FOUND"})


def test_tombstone_of_topic_node_lacks_is_warning(site):
    path = f"/api/nodes/{site.nsqds[0].http_address}"

    status, answer = call(site, "DELETE", path, '{"topic":"api.lacking"}')

    assert status == 200
    assert answer["message"].startswith("WARNING: ")
    assert "TOPIC_NOT_FOUND" in answer["message"]


def test_replies_carry_nsqs_headers_and_are_packed_on_request(site):
    site.fill("api.headers")

    answer = ask(site.admin, "GET", "/api/topics", headers={"Accept-Encoding": "gzip"})

    assert answer.headers["X-NSQ-Content-Type"] == "nsq; version=1.0"
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert "api.headers" in json.loads(gzip.decompress(answer.body))["topics"]


def test_metrics_count_requests_and_actions(site):
    call(site, "POST", "/api/topics", '{"topic":"api.metric"}')

    text = ask(site.admin, "GET", "/metrics").body.decode()

    assert 'nsqadmin_node_requests_total{outcome="ok"}' in text
    assert 'nsqadmin_admin_actions_total{action="create_topic"}' in text


def test_answer_has_what_was_created_and_published_just_before(cluster):
    site = build_site(cluster)
    seen = []
    for number in range(5):
        topic = f"new{number}"
        nsqd = site.nsqds[number % 2]
        nsqd.create(topic, "c")
        nsqd.post(f"/pub?topic={topic}", b"x")
        found = ask(site.admin, "GET", f"/api/topics/{topic}")
        nsqd.post(f"/mpub?topic={topic}", b"x\ny")
        channel = ask(site.admin, "GET", f"/api/topics/{topic}/c")
        seen.append(
            (found.status, json.loads(found.body).get("message_count"), json.loads(channel.body).get("depth"))
        )

    assert seen == [(200, 1, 3)] * 5


async def test_requests_that_come_together_share_questions_to_node():
    async with stub_site(nodes=1) as site:
        await site.round()
        node = site.nodes[0]
        node.delay_s = 0.3
        before = len(node.asked)
        await asyncio.gather(*(site.get("/api/counter") for _ in range(10)))
        asked = len([one for one in node.asked[before:] if "/stats" in one])

    # One that was out, one for all of them, and what a round asks at that time.
    assert asked <= 6
