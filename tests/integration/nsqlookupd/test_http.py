import json

import pytest

from nsqclient.wire.durations import MILLISECOND
from nsqcore.version import build
from tests.support import beside
from tests.support.waiting import eventually


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/info", {"version": "1.3.0", "build": build()}),
        ("/topics", {"topics": []}),
        ("/channels?topic=x", {"channels": []}),
        ("/channels?topic=", {"channels": []}),
        ("/channels?topic=*", {"channels": []}),
        ("/nodes", {"producers": []}),
        ("/debug", {}),
    ],
)
async def test_empty_directory_answers_empty_lists(lookupd, path, answer):
    status, headers, body = await lookupd.http("GET", path)

    assert status == 200
    assert body == json.dumps(answer, separators=(",", ":")).encode()
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    assert headers["X-NSQ-Content-Type"] == "nsq; version=1.0"


async def test_ping_is_plain(lookupd):
    status, headers, body = await lookupd.http("GET", "/ping")

    assert (status, body) == (200, b"OK")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert "X-NSQ-Content-Type" not in headers


async def test_lookup_shows_channels_and_producers(lookupd):
    announcer = await lookupd.nsqd(
        "10.0.0.9", tcp_port=9150, http_port=9151, hostname="fake", topology_zone="z", topology_region="r"
    )
    await announcer.ask(b"REGISTER t ch\n")
    _, _, body = await lookupd.http("GET", "/lookup?topic=t")

    assert body.decode() == (
        '{"channels":["ch"],"producers":[{"remote_address":"' + announcer.address + '","hostname":"fake",'
        '"broadcast_address":"10.0.0.9","tcp_port":9150,"http_port":9151,"version":"1.3.0"'
        + (',"topology_zone":"z","topology_region":"r"}]}' if beside.OURS else "}]}")  # Go's: master branch
    )


async def test_nsqd_that_drains_accepts_no_replicas(lookupd):
    announcer = await lookupd.nsqd("10.0.0.9", identity="0f" * 16, accepts_replicas=True)

    await announcer.ask(b"REGISTER t\n")

    async def accepts():
        found = [await lookupd.get(path) for path in ("/nodes", "/lookup?topic=t")]
        (producer,), (same,) = (one["producers"] for one in found)
        assert producer["identity"] == same["identity"] == "0f" * 16
        assert producer["accepts_replicas"] is same["accepts_replicas"]
        return producer["accepts_replicas"]

    assert await accepts()
    assert await announcer.ask(b"UNAVAILABLE draining\n") == b"OK"
    assert not await accepts()
    assert await announcer.ask(b"AVAILABLE\n") == b"OK"
    assert await accepts()


async def test_nodes_show_topics_with_their_tombstones(lookupd):
    announcer = await lookupd.nsqd("10.0.0.9", hostname="fake")
    await announcer.ask(b"REGISTER t1\n")
    await announcer.ask(b"REGISTER t2\n")
    await lookupd.post("/topic/tombstone?topic=t2&node=10.0.0.9:4151")
    _, _, body = await lookupd.http("GET", "/nodes")

    shown = body.decode()
    if '["t2","t1"]' in shown and not beside.OURS:  # in any order at the original
        shown = shown.replace('[true,false],"topics":["t2","t1"]', '[false,true],"topics":["t1","t2"]')
    assert shown == (
        '{"producers":[{"remote_address":"' + announcer.address + '","hostname":"fake",'
        '"broadcast_address":"10.0.0.9","tcp_port":4150,"http_port":4151,"version":"1.3.0",'
        + ('"topology_zone":"","topology_region":"",' if beside.OURS else "")  # Go's: master branch
        + '"tombstones":[false,true],"topics":["t1","t2"]}]}'
    )


async def test_idle_node_has_empty_lists(lookupd):
    await lookupd.nsqd()
    (node,) = (await lookupd.get("/nodes"))["producers"]

    assert (node["topics"], node["tombstones"]) == ([], [])


async def test_topic_without_producers_is_known_but_empty(lookupd):
    assert await lookupd.post("/topic/create?topic=t") == (200, b"")

    assert await lookupd.get("/topics") == {"topics": ["t"]}
    assert await lookupd.get("/lookup?topic=t") == {"channels": [], "producers": []}


async def test_created_channel_creates_its_topic(lookupd):
    assert await lookupd.post("/channel/create?topic=t&channel=c%23ephemeral") == (200, b"")

    assert await lookupd.get("/topics") == {"topics": ["t"]}
    assert await lookupd.get("/channels?topic=t") == {"channels": ["c#ephemeral"]}


async def test_deleted_topic_is_gone_with_its_channels(lookupd):
    announcer = await lookupd.nsqd()
    await announcer.ask(b"REGISTER t c\n")
    assert await lookupd.post("/topic/delete?topic=t") == (200, b"")

    assert await lookupd.get("/topics") == {"topics": []}
    assert await lookupd.get("/channels?topic=t") == {"channels": []}
    assert len((await lookupd.get("/nodes"))["producers"]) == 1


async def test_deleted_channel_leaves_its_topic(lookupd):
    await lookupd.post("/channel/create?topic=t&channel=c")
    assert await lookupd.post("/channel/delete?topic=t&channel=c") == (200, b"")

    assert await lookupd.get("/channels?topic=t") == {"channels": []}
    assert await lookupd.get("/topics") == {"topics": ["t"]}


async def test_tombstone_hides_node_for_its_lifetime(start):
    lookupd = await start(tombstone_lifetime=200 * MILLISECOND)
    announcer = await lookupd.nsqd("n")
    await announcer.ask(b"REGISTER t\n")
    assert await lookupd.post("/topic/tombstone?topic=t&node=n:4151") == (200, b"")

    assert await lookupd.producers("t") == []

    async def is_back():
        return await lookupd.producers("t") == ["n"]

    await eventually(is_back, "the tombstone is over")
    (entry,) = (await lookupd.get("/debug"))["topic:t:"]
    assert entry["tombstoned"] is True
    (node,) = (await lookupd.get("/nodes"))["producers"]
    assert node["tombstones"] == [False]


async def test_debug_shows_one_topic_when_asked_for_it(lookupd):
    announcer = await lookupd.nsqd("n")
    await announcer.ask(b"REGISTER t c\n")
    await announcer.ask(b"REGISTER u c\n")

    assert sorted(await lookupd.get("/debug?topic=u")) == ["channel:u:c", "topic:u:"]
    assert await lookupd.get("/debug?topic=none") == {}


async def test_debug_answer_of_many_pieces_is_one_json_object(lookupd):
    names = [f"t{number:03}" for number in range(400)]
    for node in ("n", "m"):
        announcer = await lookupd.nsqd(node)
        for name in names:
            await announcer.ask(f"REGISTER {name} c\n".encode())
    shown = await lookupd.get("/debug")

    assert sorted(shown) == sorted(
        ["client::", *(f"topic:{name}:" for name in names), *(f"channel:{name}:c" for name in names)]
    )
    assert all(sorted(one["broadcast_address"] for one in found) == ["m", "n"] for found in shown.values())


async def test_debug_shows_every_key_with_producers(lookupd):
    announcer = await lookupd.nsqd("10.0.0.9", hostname="fake", topology_zone="z")
    await announcer.ask(b"REGISTER t c\n")
    shown = await lookupd.get("/debug")

    assert sorted(shown) == ["channel:t:c", "client::", "topic:t:"]
    (entry,) = shown["client::"]
    assert entry.pop("last_update") > 1_700_000_000_000_000_000
    if not beside.OURS:  # the first year of Go's calendar; zones only in the original's master branch
        entry |= {"tombstoned_at": 0, "topology_region": "", "topology_zone": "z"}
    assert entry == {
        "broadcast_address": "10.0.0.9",
        "hostname": "fake",
        "http_port": 4151,
        "id": announcer.address,
        "tcp_port": 4150,
        "tombstoned": False,
        "tombstoned_at": 0,
        "topology_region": "",
        "topology_zone": "z",
        "version": "1.3.0",
    }


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/channels", 400, "MISSING_ARG_TOPIC"),
        ("GET", "/lookup", 400, "MISSING_ARG_TOPIC"),
        ("GET", "/lookup?topic=none", 404, "TOPIC_NOT_FOUND"),
        ("GET", "/lookup?topic=", 404, "TOPIC_NOT_FOUND"),
        ("GET", "/lookup?topic=*", 404, "TOPIC_NOT_FOUND"),
        ("GET", "/lookup?topic=%zz", 400, "INVALID_REQUEST"),
        ("GET", "/lookup?topic=a;b=1", 400, "INVALID_REQUEST"),
        ("GET", "/debug?topic=%zz", 400, "INVALID_REQUEST"),
        ("POST", "/topic/create", 400, "MISSING_ARG_TOPIC"),
        ("POST", "/topic/create?topic=", 400, "INVALID_ARG_TOPIC"),
        ("POST", "/topic/create?topic=bad$", 400, "INVALID_ARG_TOPIC"),
        ("POST", "/topic/delete", 400, "MISSING_ARG_TOPIC"),
        ("POST", "/topic/delete?topic=*", 400, "INVALID_ARG_TOPIC"),
        ("POST", "/topic/tombstone", 400, "MISSING_ARG_TOPIC"),
        ("POST", "/topic/tombstone?node=a:1", 400, "MISSING_ARG_TOPIC"),
        ("POST", "/topic/tombstone?topic=t", 400, "MISSING_ARG_NODE"),
        ("POST", "/topic/tombstone?topic=*&node=a:1", 400, "INVALID_ARG_TOPIC"),
        ("POST", "/channel/create", 400, "MISSING_ARG_TOPIC"),
        ("POST", "/channel/create?topic=$", 400, "INVALID_ARG_TOPIC"),
        ("POST", "/channel/create?topic=t", 400, "MISSING_ARG_CHANNEL"),
        ("POST", "/channel/create?topic=t&channel=$", 400, "INVALID_ARG_CHANNEL"),
        ("POST", "/channel/delete?channel=c", 400, "MISSING_ARG_TOPIC"),
        ("POST", "/channel/delete?topic=$&channel=c", 400, "INVALID_ARG_TOPIC"),
        ("POST", "/channel/delete?topic=t", 400, "MISSING_ARG_CHANNEL"),
        ("POST", "/channel/delete?topic=t&channel=$", 400, "INVALID_ARG_CHANNEL"),
        ("POST", "/channel/delete?topic=t&channel=c", 404, "CHANNEL_NOT_FOUND"),
        ("GET", "/nope", 404, "NOT_FOUND"),
        ("POST", "/create_topic?topic=t", 404, "NOT_FOUND"),
        ("GET", "/stats", 404, "NOT_FOUND"),
        ("POST", "/topics", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/topic/create?topic=t", 405, "METHOD_NOT_ALLOWED"),
    ],
)
async def test_errors_are_status_and_code(lookupd, method, path, status, code):
    answered, headers, body = await lookupd.http(method, path)

    assert (answered, json.loads(body)) == (status, {"message": code})
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    assert headers["X-NSQ-Content-Type"] == "nsq; version=1.0"


async def test_arguments_in_form_do_not_count(lookupd):
    status, _, body = await lookupd.http("POST", "/topic/create", data={"topic": "t"})

    assert (status, json.loads(body)) == (400, {"message": "MISSING_ARG_TOPIC"})


@pytest.mark.parametrize("path", ["/topic/delete?topic=t", "/topic/tombstone?topic=t&node=a:1"])
async def test_deleting_and_tombstoning_unknown_entries_is_ok(lookupd, path):
    assert await lookupd.post(path) == (200, b"")


async def test_allowed_methods_are_listed(lookupd):
    status, headers, body = await lookupd.http("OPTIONS", "/topic/create")
    assert (status, headers["Allow"], body) == (200, "OPTIONS, POST", b"")

    status, headers, _ = await lookupd.http("HEAD", "/topics")
    assert (status, headers["Allow"]) == (405, "GET, OPTIONS")


async def test_another_spelling_of_path_is_redirected(lookupd):
    status, headers, body = await lookupd.http("GET", "/Topics/")
    assert (status, headers["Location"], body) == (
        301,
        "/topics",
        b'<a href="/topics">Moved Permanently</a>.\n\n',
    )

    status, headers, _ = await lookupd.http("POST", "/topic/create/?topic=q")
    assert (status, headers["Location"]) == (307, "/topic/create?topic=q")


async def test_metrics_count_registrations(lookupd):
    announcer = await lookupd.nsqd()
    await announcer.ask(b"REGISTER t c\n")
    status, _, body = await lookupd.http("GET", "/metrics")

    assert status == 200
    lines = body.decode().splitlines()
    assert "nsqlookupd_peers 1.0" in lines
    assert "nsqlookupd_topics 1.0" in lines
    assert "nsqlookupd_channels 1.0" in lines
    assert "nsqlookupd_commands_total 2.0" in lines


async def test_operators_changes_are_logged(lookupd):
    await lookupd.post("/channel/create?topic=t&channel=c")
    await lookupd.post("/topic/tombstone?topic=t&node=n:1")
    await lookupd.post("/topic/delete?topic=t")

    lines = lookupd.lines()
    assert "INFO: DB: adding channel(c) in topic(t)" in lines
    assert "INFO: DB: setting tombstone for producer@n:1 of topic(t)" in lines
    assert "INFO: DB: removing channel(c) from topic(t)" in lines
    assert "INFO: DB: removing topic(t)" in lines


async def test_page_of_another_site_changes_nothing(lookupd):
    for headers in ({"Origin": "http://evil"}, {"Sec-Fetch-Site": "cross-site"}):
        status, _, body = await lookupd.http("POST", "/topic/create?topic=t", headers=headers)
        assert (status, body) == (403, b'{"message":"FORBIDDEN"}')
        assert (await lookupd.http("GET", "/topics", headers=headers))[0] == 200

    assert await lookupd.get("/topics") == {"topics": []}


async def test_producers_are_sent_to_nsqds_that_take_publishes(lookupd):
    a = await lookupd.nsqd("nsqd-a")
    await lookupd.nsqd("nsqd-b")
    await a.ask(b"REGISTER t\n")
    path = "/lookup/producers?topic=t"

    async def found():
        return [node["broadcast_address"] for node in (await lookupd.get(path))["producers"]]

    assert await found() == ["nsqd-a", "nsqd-b"]
    assert await a.ask(b"UNAVAILABLE draining\n") == b"OK"
    assert await found() == ["nsqd-b"]
    assert await lookupd.producers("t") == ["nsqd-a"]  # consumers still find it
    assert await a.ask(b"AVAILABLE\n") == b"OK"
    assert await found() == ["nsqd-a", "nsqd-b"]
    await lookupd.post("/topic/tombstone?topic=t&node=nsqd-b:4151")
    assert await found() == ["nsqd-a", "nsqd-b"]  # nsqd-b has no such topic, so nothing was marked
    assert (await lookupd.http("GET", "/lookup/producers?topic=$"))[0] == 400
    assert len((await lookupd.get("/lookup/producers"))["producers"]) == 2


async def test_lookup_nodes_shows_nsqds_that_accept_replicas(lookupd):
    a = await lookupd.nsqd(
        "nsqd-a", identity="0a" * 16, accepts_replicas=True, hostname="h", topology_zone="z"
    )
    await lookupd.nsqd("nsqd-b", identity="0b" * 16)
    await lookupd.nsqd("original")
    await a.ask(b"REGISTER t\n")
    shown = {
        "identity": "0a" * 16,
        "broadcast_address": "nsqd-a",
        "tcp_port": 4150,
        "hostname": "h",
        "topology_zone": "z",
        "accepts_replicas": True,
    }

    assert await lookupd.get("/lookup/nodes") == {"nodes": [shown]}
    assert await a.ask(b"UNAVAILABLE draining\n") == b"OK"
    assert await lookupd.get("/lookup/nodes") == {"nodes": []}
    drains = {**shown, "accepts_replicas": False}
    assert await lookupd.get(f"/lookup/nodes?identity={'0a' * 16}") == {"nodes": [drains]}
    assert await a.ask(b"AVAILABLE\n") == b"OK"
    assert await lookupd.get("/lookup/nodes") == {"nodes": [shown]}


async def test_lookup_lost_shows_disconnected_nsqd_until_it_has_topic_again(lookupd):
    a, b = await lookupd.nsqd("nsqd-a", identity="0a" * 16), await lookupd.nsqd("nsqd-b")
    for nsqd in (a, b):
        await nsqd.ask(b"REGISTER t\n")
        await nsqd.ask(b"REGISTER u\n")

    async def lost(query=""):
        nodes = (await lookupd.get(f"/lookup/lost{query}"))["nodes"]
        return [(node["broadcast_address"], node.get("identity", ""), node["topics"]) for node in nodes]

    assert await lost() == []
    await a.close()

    async def is_lost():
        return await lost() != []

    await eventually(is_lost, "the connection has ended")
    found = await lost("?topic=t")
    assert found == [("nsqd-a", "0a" * 16, ["t"])]
    assert await lost() == [("nsqd-a", "0a" * 16, ["t", "u"])]
    assert await lost("?topic=v") == []
    back = await lookupd.nsqd("nsqd-a", identity="0a" * 16)
    assert await lost("?topic=t") == found
    await back.ask(b"REGISTER t\n")
    assert await lost("?topic=t") == []


async def test_lookup_nodes_shows_addresses_of_identities(lookupd):
    for number in (10, 11, 12):
        await lookupd.nsqd(f"10.0.0.{number}", identity=f"{number:032x}")
    # The connection from its last address is still open.
    await lookupd.nsqd("10.0.0.99", identity=f"{10:032x}")

    async def found(*numbers):
        asked = ",".join(f"{number:032x}" for number in numbers)
        nodes = (await lookupd.get(f"/lookup/nodes?identity={asked}"))["nodes"]
        return [(int(node["identity"], 16), node["broadcast_address"]) for node in nodes]

    assert await found(11) == [(11, "10.0.0.11")]
    assert await found(10, 12) == [(10, "10.0.0.99"), (12, "10.0.0.12"), (10, "10.0.0.10")]
    assert await found(13) == []


@pytest.mark.parametrize(
    "identity", ["", "0f", "0F" * 16, "0f" * 17, f"{'0f' * 16},", f"{'0f' * 16},x", "%0a"]
)
async def test_lookup_nodes_refuses_invalid_identities(lookupd, identity):
    status, _, body = await lookupd.http("GET", f"/lookup/nodes?identity={identity}")

    assert (status, json.loads(body)) == (400, {"message": "INVALID_ARG_IDENTITY"})


async def test_connection_without_identify_cannot_set_availability(lookupd):
    stranger = await lookupd.connect()

    assert await stranger.ask(b"AVAILABLE\n") == b"E_INVALID client must IDENTIFY"
