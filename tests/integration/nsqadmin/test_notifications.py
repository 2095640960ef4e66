"""The result of a change names the nodes where it was done or not, and those that will undo a deletion."""

import json

import pytest

from tests.support.stub_site import SOON_SILENT, stub_site

TOPIC = "topic.0001.events"


async def frozen_site(site, *numbers):
    """Stop the answers of some nodes, and wait until nsqadmin has noticed."""
    for number in numbers:
        site.nodes[number].frozen.clear()

    async def noticed():
        silent = {one[2] for one in await site.problems() if one[1] == "unreachable"}
        return silent == {site.address(number) for number in numbers}

    await site.until(noticed, "the silence is noticed")


async def test_deletion_names_unreached_nodes_before_and_after():
    async with stub_site(nodes=20, lookupds=2, **SOON_SILENT) as site:
        await site.get("/")
        await frozen_site(site, 3, 4)
        # nsqlookupd no longer lists them.
        site.stubs.unlisted |= {3, 4}
        silent = ", ".join(sorted(site.address(number) for number in (3, 4)))

        async def left():
            return {one[2] for one in await site.problems() if one[1] == "down"} == {
                site.address(number) for number in (3, 4)
            }

        await site.until(left, "they left")
        question = await site.get(f"/action?action=delete&topic={TOPIC}")
        done = await site.submit(action="delete", topic=TOPIC, typed=TOPIC)
        result = await site.follow(done)
        log = site.log

    assert f"2 nsqds that hold it are not reached ({silent}): nothing changes there" in question.text
    assert f"Topic {TOPIC} was deleted on 18 nsqds and 2 nsqlookupds." in result.text
    assert all(
        f"nsqd {one} was not reached: nothing changed there" in result.text for one in silent.split(", ")
    )
    assert f"delete_topic {TOPIC} on 18 nsqd and 2 nsqlookupd" in log
    assert f"not reached, and unchanged: {silent}" in log


async def test_action_that_times_out_is_unknown_on_page_api_and_audit():
    async with stub_site(nodes=2, **SOON_SILENT) as site:
        await site.get("/")
        site.nodes[1].frozen.clear()

        done = await site.submit(action="empty", topic=TOPIC, channel="billing")
        result = await site.follow(done)
        (entry,) = (await site.get("/audit?format=json")).json()["changes"]
        audit = (await site.get("/audit")).text
        next_change = await site.submit(action="pause", topic=TOPIC, channel="billing")
        (paused, _) = (await site.get("/audit?format=json")).json()["changes"]
        await site.follow(next_change)
        sent = list(site.nodes[1].posted)
        site.nodes[1].frozen.set()

        async def settled():
            changes = (await site.get("/audit?format=json")).json()["changes"]
            return not any(one["unknown"] for one in changes)

        await site.until(settled, "the audit is completed")
        completed = (await site.get("/audit?format=json")).json()["changes"][-1]
        await site.follow(await site.submit(action="unpause", topic=TOPIC, channel="billing"))
        sent_later = site.nodes[1].posted[len(sent) :]
        address = site.address(1)

    assert f"Channel billing of topic {TOPIC} was emptied on 1 nsqd." in result.text
    assert f"nsqd {address} did not answer in time" in result.text
    assert "the outcome is unknown, it may still happen" in result.text
    assert (entry["unknown"], entry["silent"]) == ([address], [])
    assert f"{address}: unknown: timed out" in audit
    # The next change must not overtake the one that may still happen.
    assert paused["results"][address] == "the outcome of an earlier change is unknown"
    assert (paused["unknown"], paused["silent"]) == ([], [address])
    assert sent_later == ["/channel/empty", "/channel/unpause"]
    assert completed["results"][address].endswith("when the node answered again")


def refuses(node, why="FORBIDDEN"):
    """Let *node* refuse all changes, as behind a proxy that allows nsqadmin none."""
    usual = node.answer
    refusal = 403, json.dumps({"message": why}).encode()
    node.answer = lambda method, path, query: refusal if method == "POST" else usual(method, path, query)


async def test_topic_that_its_node_refuses_to_delete_is_reported_as_hidden():
    async with stub_site(nodes=2, topics=2) as site:
        await site.get("/")
        refuses(site.nodes[0])
        fields = {"action": "tombstone", "topic": TOPIC, "typed": TOPIC}
        refused = await site.follow(await site.submit(node=site.address(0), **fields))
        done = await site.follow(await site.submit(node=site.address(1), **fields))
        entries = (await site.get("/audit?format=json")).json()["changes"]
        audit = (await site.get("/audit")).text
        addresses = [site.address(number) for number in range(2)]

    assert f"was deleted on {addresses[0]}" not in refused.text
    assert f"was not deleted on {addresses[0]}; consumers are not sent there" in refused.text
    assert "FORBIDDEN" in refused.text
    assert f"was deleted on {addresses[1]}" in done.text
    assert [entry["ok"] for entry in entries] == [True, False]
    assert entries[1]["problem"] == f"{addresses[0]}: FORBIDDEN"
    assert f"failed: {addresses[0]}: FORBIDDEN" in audit


@pytest.mark.parametrize("letter", ["x", "ж", "🙂"])
@pytest.mark.parametrize("nodes", [2, 30])
async def test_change_not_made_everywhere_is_reported_as_such(nodes, letter):
    async with stub_site(nodes=nodes, topics=2) as site:
        await site.get("/")
        for node in site.nodes[1:]:
            refuses(node, f"E_FULL {letter * 5000}")
        done = await site.submit(action="empty", topic=TOPIC)
        result = await site.follow(done)

    assert f"Topic {TOPIC} was emptied on 1 nsqd." in result.text
    assert "Not confirmed by all nodes:" in result.text
    assert f"E_FULL {letter}" in result.text
    assert ("more is in the log" in result.text) == (nodes > 2)
    assert len(done.headers["Set-Cookie"]) < 4096


async def test_change_that_one_node_makes_and_another_refuses_is_done():
    async with stub_site(nodes=2, topics=2) as site:
        await site.get("/")
        refuses(site.nodes[0])
        result = await site.follow(await site.submit(action="delete", topic=TOPIC, typed=TOPIC))
        (entry,) = (await site.get("/audit?format=json")).json()["changes"]

    assert f"Topic {TOPIC} was deleted on 1 nsqd and 1 nsqlookupd." in result.text
    assert (entry["ok"], entry["problem"]) == (True, "")


@pytest.mark.parametrize("action", ["delete", "pause"])
async def test_node_that_is_not_listed_is_left_alone_and_named(action):
    async with stub_site(nodes=2) as site:
        await site.get("/")
        site.stubs.unlisted.add(1)
        apart = site.address(1)

        await site.problem("problem", "not registered", apart)
        question = await site.get(f"/action?action={action}&topic={TOPIC}")
        result = await site.follow(await site.submit(action=action, topic=TOPIC, typed=TOPIC))
        (entry,) = (await site.get("/audit?format=json")).json()["changes"]
        log = site.log

    for page in (question, result):
        assert apart in page.text
        assert "not reached" in page.text
    assert (list(entry["results"])[-1], entry["silent"]) == (site.address(0), [apart])
    assert f"not reached, and unchanged: {apart}" in log
    assert not site.nodes[1].posted


async def test_log_escapes_names_and_ignores_claimed_user():
    async with stub_site() as site:
        name = "x%0AINFO:%20alice%20from%2010.0.0.1%1b[2J"
        await site.ask(
            "POST", f"/api/topics/{name}", '{"action":"pause"}', Authorization="Basic bWFsbG9yeTp4"
        )
        log = site.log

    lines = [line for line in log.splitlines() if "pause_topic" in line and "failed" in line]
    assert len(lines) == 1
    assert "\\nINFO: alice" in lines[0]
    assert "\x1b" not in log
    assert not any(line.startswith("INFO: alice") for line in log.splitlines())
    assert not any("mallory" in line for line in log.splitlines())
    assert "anonymous from 127.0.0.1" in lines[0]


async def test_address_is_logged_without_password_and_path():
    endpoint = "http://bot:secret@127.0.0.1:1/hook/secret"
    async with stub_site(notification_http_endpoint=endpoint) as site:
        await site.submit(action="pause", topic=TOPIC)

        async def told():
            return "failed to POST notification" in site.log

        await site.until(told, "the failure is logged")

    assert "secret" not in site.log
    assert "http://127.0.0.1:1:" in site.log


async def test_errors_of_page_asked_for_as_json_are_json():
    async with stub_site() as site:
        unknown = await site.get("/topics/none?format=json")
        channel = await site.get(f"/topics/{TOPIC}/none?format=json")
        site.stubs.silent_lookupds.add(0)
    async with stub_site(before=lambda stubs: stubs.silent_lookupds.add(0)) as site:
        down = await site.get("/?format=json")

    assert (unknown.status, unknown.json()) == (404, {"message": "TOPIC_NOT_FOUND"})
    assert (channel.status, channel.json()) == (404, {"message": "CHANNEL_NOT_FOUND"})
    assert (down.status, down.json()["message"][:14]) == (502, "UPSTREAM_ERROR")


async def test_node_that_answers_with_error_is_not_said_to_be_silent():
    async with stub_site() as site:
        await site.get("/")
        site.nodes[0].answer = lambda *_: (500, b'{"message":"INTERNAL_ERROR"}')

        await site.problem("problem", "no statistics", site.address(0))
        page = (await site.get("/")).text

    assert "nsqd answers, but gives no statistics" in page


async def test_field_that_is_null_is_as_one_that_is_missing():
    async with stub_site(nodes=1) as site:
        site.nodes[0].edit = lambda answer: answer.update(version=None)

        async def shown():
            await site.round()
            return ("problem", "no statistics", site.address(0)) not in await site.problems()

        await site.until(shown, "its statistics are read")
        assert (await site.get(f"/api/topics/{TOPIC}")).status == 200


async def test_channel_that_only_nsqlookupd_knows_has_page():
    async with stub_site(before=lambda stubs: stubs.registered.update({TOPIC: ["waiting"]})) as site:
        page = await site.get(f"/topics/{TOPIC}/waiting")

    assert page.status == 200
    assert "No nsqd has this channel now" in page.text


async def test_consumers_of_few_nodes_are_cached():
    async with stub_site(nodes=6) as site:
        for number in range(6):
            found = json.loads((await site.get(f"/api/nodes/{site.address(number)}")).body)
            assert found["total_clients"] > 0
            assert (await site.get(f"/nodes/{site.address(number)}")).status == 200
        kept = [key for key in site.daemon._cluster._consumers._shared.wanted() if not key[1]]

    assert len(kept) <= 3


async def test_graphs_of_graphite_are_pictures_with_a_time_frame():
    async with stub_site(graphite_url="http://graphite.example:8080") as site:
        page = await site.get(f"/topics/{TOPIC}/billing?t=24h")
        off = await site.get(f"/topics/{TOPIC}/billing?t=off")
    async with stub_site() as site:
        without = await site.get(f"/topics/{TOPIC}")

    assert page.html.count('<img src="http://graphite.example:8080/render?') == 7
    assert "from=-24h" in page.html
    assert "img-src 'self' http://graphite.example:8080" in page.headers["Content-Security-Policy"]
    assert '<img src="http' not in off.html
    assert "graphite" not in without.headers["Content-Security-Policy"]
    assert "Graphite" not in without.text


@pytest.mark.parametrize(("depth", "typed"), [(0, False), (4000, False), (9000, True)])
async def test_emptying_many_messages_needs_typed_name(depth, typed):
    def hold(answer):
        for topic in answer["topics"]:
            for channel in topic["channels"]:
                channel.update(depth=depth, in_flight_count=0, deferred_count=0)

    async with stub_site(nodes=2) as site:
        for node in site.nodes:
            node.edit = hold
        await site.round()
        await site.round()
        fields = {"action": "empty", "topic": TOPIC, "channel": "billing"}
        question = await site.get(f"/action?action=empty&topic={TOPIC}&channel=billing")
        plain = await site.submit(**fields)
        named = await site.submit(**fields, typed="billing")
        picked = await site.submit("/action", action="empty", pick=f"{TOPIC}/billing")

    assert ('id="typed"' in question.html) is typed
    assert [plain.status, named.status] == [422 if typed else 303, 303]
    assert picked.status == (422 if typed else 303)
