"""Statistics of pages and the API are true: reading does not freeze them, no total is silently too small."""

import re
import time

from nsqclient.wire.durations import MILLISECOND, SECOND
from tests.support.stub_site import stub_site

TOPIC = "topic.0001.events"
STILL = 3600 * SECOND


def hold(topic=TOPIC, channel="billing", **statistics):
    """An edit that gives a channel these statistics in a node's answers."""

    def edit(answer):
        for one in answer["topics"]:
            if one["topic_name"] == topic:
                for found in one["channels"]:
                    if found["channel_name"] == channel:
                        found.update(statistics)

    return edit


async def test_reads_of_unknown_topic_do_not_delay_statistics():
    async with stub_site(nodes=3) as site:
        for node in site.nodes:
            node.delay_s = 0.15
        await site.get("/")
        began = time.time()

        async def read_and_look():
            # Both requests once made nsqadmin discard answers that were on their way.
            await site.get("/topics/unknown")
            await site.get(f"/action?action=pause&topic={TOPIC}")
            # A request like that of an image on another site's page.
            image = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "image", "Sec_Fetch_Mode": "no-cors"}
            await site.get(f"/topics/unknown-{time.time_ns()}", **image)
            statistics_at = (await site.get("/?format=json")).json()["statistics_at"]
            return statistics_at > began + 1.0

        await site.until(read_and_look, "statistics of a second later are shown")


async def test_unknown_topic_is_queried_once_per_interval():
    async with stub_site(nodes=2, collect_interval=STILL) as site:
        await site.get("/")
        for node in site.nodes:
            node.asked.clear()

        for number in range(20):
            assert (await site.get(f"/topics/unknown-{number}")).status == 404

        assert [asked for node in site.nodes for asked in node.asked] == []


async def test_answer_older_than_a_change_does_not_undo_it():
    async with stub_site(nodes=1, collect_interval=50 * MILLISECOND) as site:
        await site.until(lambda: known(site), "the topic is known")
        node = site.nodes[0]
        node.delay_s = 0.5
        await site.round()
        # A poll is on its way now; its answer is from before the change.
        node.delay_s = 0.0
        node.edit = lambda answer: answer["topics"].clear()
        await site.submit(action="delete", topic=TOPIC, typed=TOPIC)

        async def rows():
            return (await site.get(f"/?q={TOPIC}&format=json")).json()["topics"]

        seen = [bool(await rows()) and not (await rows())[0]["inactive"] for _ in range(60)]

    assert seen == [False] * 60


async def known(site):
    return (await site.get(f"/api/topics/{TOPIC}")).status == 200


async def test_answer_of_api_is_not_older_than_a_second():
    async with stub_site(nodes=2, collect_interval=STILL) as site:
        await site.get(f"/api/topics/{TOPIC}")
        for node in site.nodes:
            node.edit = hold(depth=4321)
        site.daemon.collector.asker.topics_asked.expire(bool)
        for member in site.daemon.collector.membership.members.values():
            # Make the last request look older.
            member.snapshot_requested_ns = 0

        topic = (await site.get(f"/api/topics/{TOPIC}")).json()
        channel = (await site.get(f"/api/topics/{TOPIC}/billing")).json()
        node = (await site.get(f"/api/nodes/{site.address(0)}")).json()

    assert topic["channels"][0]["depth"] == 2 * 4321
    assert channel["depth"] == 2 * 4321
    (found,) = [one for one in node["topics"] if one["topic_name"] == TOPIC]
    assert found["channels"][0]["depth"] == 4321


async def test_new_topic_is_in_next_answer_of_api():
    async with stub_site(collect_interval=STILL) as site:
        await site.get("/api/topics")
        site.stubs.registered["new.topic"] = ["first"]
        site.daemon.collector.membership._discovery_ns = 0

        names = (await site.get("/api/topics")).json()["topics"]

    assert "new.topic" in names


async def test_channel_that_appears_on_one_node_makes_no_rate_smaller():
    async with stub_site(nodes=2, topics=1) as site:
        name = "topic.0000.events"

        async def rate():
            return (await site.get("/?format=json")).json()["topics"][0]["messages_per_second"]

        before = await site.until(rate, "the rate is known")
        extra = {"channel_name": "late", "depth": 0, "message_count": 0, "client_count": 1}
        site.nodes[0].edit = lambda answer: answer["topics"][0]["channels"].insert(0, dict(extra))

        seen = []
        for _ in range(15):
            await site.round()
            seen.append(await rate())

    assert name
    assert before > 0
    assert all(abs(one - before) < 0.35 * before for one in seen), (before, seen)


async def test_node_polled_once_makes_total_rate_unknown():
    async with stub_site(nodes=2, topics=1, before=lambda stubs: stubs.unlisted.add(1)) as site:

        async def rate():
            return (await site.get("/?format=json")).json()["topics"][0]["messages_per_second"]

        alone = await site.until(rate, "the rate of one node is known")
        site.stubs.unlisted.clear()

        async def both():
            now = await rate()
            # The rate is that of the first node, then unknown for a moment, then that of both.
            assert now is None or abs(now - alone) < 0.35 * alone or now > 1.2 * alone
            return now is not None and now > 1.2 * alone

        await site.until(both, "the rates of both nodes are added")


async def test_dead_nsqlookupds_from_start_are_502_and_not_404():
    async with stub_site(before=lambda stubs: stubs.silent_lookupds.add(0)) as site:
        for path in ("/api/topics/orders", "/topics/orders", "/api/topics/orders/a", "/api/topics", "/"):
            assert (await site.get(path)).status == 502, path
        site.stubs.silent_lookupds.clear()

        async def there():
            return (await site.get(f"/topics/{TOPIC}")).status == 200

        await site.until(there, "it is there with the nsqlookupd")


async def test_node_down_from_start_has_page():
    def die(stubs):
        stubs.nodes[1].server.close()

    async with stub_site(lookupds=0, before=die) as site:
        address = site.address(1)

        await site.problem("problem", "unreachable", address)
        page = await site.get(f"/nodes/{address}")
        api = await site.get(f"/api/nodes/{address}")

    assert page.status == 200
    assert "nsqd does not answer" in page.text
    assert api.status == 502


async def test_answer_after_change_of_nsqlookupds_is_theirs():
    async with stub_site(lookupds=2) as site:
        await site.get("/")
        lookupd = site.lookupds[1]
        put = await site.ask("PUT", "/config/nsqlookupd_http_addresses", f'["{lookupd}"]')
        answers = [(await site.get(path)).status for path in ("/api/topics", "/api/nodes", "/", "/nodes")]

    assert (put.status, answers) == (200, [200] * 4)


async def test_handler_that_takes_its_time_is_not_stuck():
    statistics = {"depth": 50, "message_count": 1000, "deferred_count": 0, "timeout_count": 0}
    busy = hold("topic.0000.events", **statistics, in_flight_count=2)
    channel = "topic.0000.events/billing"

    async with stub_site(1, 1, before=lambda stubs: setattr(stubs.nodes[0], "edit", busy)) as site:
        collector = site.daemon.collector
        await site.round()
        for member in collector.membership.members.values():
            for mark in member.pace._history:
                # Make these statistics appear 15 seconds old.
                mark.at_ns -= 15 * SECOND
        seen = set()
        for _ in range(10):
            await site.round()
            seen |= await site.problems()
        site.nodes[0].edit = hold(
            "topic.0000.events", **statistics | {"message_count": 1002}, in_flight_count=0
        )

        async def told():
            # A request that was already sent is answered with the earlier statistics.
            looks = [member.snapshot for member in collector.membership.members.values()]
            return all(look.topics["topic.0000.events"].channels[0].in_flight_count == 0 for look in looks)

        await site.until(told, "the statistics are those of now")
        for member in collector.membership.members.values():
            member.pace._history.clear()
        await site.round()
        await site.round()
        for member in collector.membership.members.values():
            for mark in member.pace._history:
                mark.at_ns -= 6 * SECOND

        async def stuck():
            return any(one[1:] == ("stuck", channel) for one in await site.problems())

        await site.until(stuck, "one whose consumers take nothing is")

    assert all(one[1:] != ("stuck", channel) for one in seen)


async def test_totals_name_down_node_and_its_backlog():
    async with stub_site(nodes=2) as site:
        site.nodes[1].edit = hold(depth=500)
        await site.round()
        await site.round()
        site.nodes[1].edit = None
        await site.stubs._problem(site.nodes[1], "die")
        address = site.address(1)

        async def left():
            return any(one[1:] == ("down", address) for one in await site.problems())

        await site.until(left, "it left")
        topic = await site.get(f"/topics/{TOPIC}")
        channel = await site.get(f"/topics/{TOPIC}/billing")

    # The other channel held a few messages too.
    assert re.search(rf"\+ 5\d\d on {address}, down", topic.text)
    assert f"+ 500 on {address}, down" in channel.text
    assert f"{address} stub-1 down" in topic.text
    assert f"{address} stub-1 down" in channel.text


async def test_polls_of_down_node_are_no_failed_requests():
    async with stub_site(nodes=2) as site:
        await site.get("/")
        await site.stubs._problem(site.nodes[1], "die")
        address = site.address(1)
        unlisted = site.daemon.collector.membership.unlisted

        async def unreachable():
            lines = (await site.get("/metrics")).html.splitlines()
            return [line for line in lines if line.startswith("nsqadmin_node") and "unreachable" in line]

        async def asked():
            return address in unlisted and unlisted[address].poll.done()

        async def asked_again():
            return unlisted[address].poll_ns != first_ns and await asked()

        await site.until(asked, "it left, and what was asked before is answered")
        before, first_ns = await unreachable(), unlisted[address].poll_ns
        await site.until(asked_again, "it is asked all the same")

        assert len(before) == 1
        assert await unreachable() == before


async def test_nsqds_are_polled_rarely_without_viewers():
    async with stub_site(nodes=1, collect_interval=20 * MILLISECOND) as site:
        await site.get("/")
        collector = site.daemon.collector
        watched = collector.interval_s
        collector._last_read -= 3600

        assert collector.interval_s >= 5 * watched


async def test_consumers_are_grouped_and_nodes_shown_by_backlog():
    def edit(answer):
        for topic in answer["topics"]:
            for channel in topic["channels"]:
                channel["depth"] = 900

    async with stub_site(nodes=3) as site:
        site.nodes[0].edit = edit
        await site.get("/")
        await site.round()
        path = "/topics/topic.0001.events/billing"
        by_client = (await site.get(f"{path}?by=client")).text
        by_agent = (await site.get(f"{path}?by=agent")).text
        plain = await site.get(f"{path}?by=nonsense")

    assert "app-1-0 0 3 9 300" in by_client
    assert "stub/1.0 0 6 18 600" in by_agent
    assert plain.status == 200
    assert "Consumers together" not in plain.html
    assert plain.html.count('class="node-tile heat-') == 3
    assert plain.html.count('class="node-tile heat-5"') == 1


async def test_node_whose_registrations_are_not_what_it_holds_says_so():
    def edit(answer):
        answer["topics"] = [one for one in answer["topics"] if one["topic_name"] != "topic.0001.events"]
        answer["topics"].append({"topic_name": "unheard-of", "channels": []})

    async with stub_site(nodes=2) as site:
        site.nodes[0].edit = edit
        await site.get("/")
        await site.round()
        page = (await site.get(f"/nodes/{site.address(0)}")).text
        other = (await site.get(f"/nodes/{site.address(1)}")).text
        listed = (await site.get("/nodes?cols=differs&q=differs:unheard-of&format=json")).json()["nodes"]

    assert "unheard-of is held and not registered" in page
    assert "topic.0001.events is registered and not held" in page
    assert "Registered otherwise" not in other
    assert [one["node"] for one in listed] == [site.address(0)]


async def test_topic_names_are_requested_without_nodes():
    async with stub_site(lookupds=2, collect_interval=STILL) as site:
        await site.get("/api/topics")
        for address in (membership := site.daemon.collector.membership).registers:
            assert membership.registers[address].topics
        membership._discovery_ns = membership._naming_ns = 0
        before = [register.nodes_digest for register in membership.registers.values()]
        site.stubs.registered["new.topic"] = ["first"]
        site.stubs.unlisted.add(0)

        names = (await site.get("/api/topics")).json()["topics"]
        after = [register.nodes_digest for register in membership.registers.values()]
        nodes = (await site.get("/api/nodes")).json()["nodes"]

    assert "new.topic" in names
    assert after == before
    assert len(nodes) == 1


async def test_node_with_fresh_statistics_is_not_polled_again():
    async with stub_site(nodes=2, collect_interval=STILL) as site:
        await site.get("/")
        members = site.daemon.collector.membership.members
        site.nodes[0].edit = hold(depth=4321)
        site.nodes[1].edit = hold(depth=1234)
        site.daemon.collector.asker.topics_asked.expire(bool)
        members[site.address(0)].snapshot_requested_ns = 0
        members[site.address(1)].snapshot_requested_ns = time.monotonic_ns() + 3600 * SECOND

        topic = (await site.get(f"/api/topics/{TOPIC}")).json()
        asked = {node["node"]: node["channels"][0]["depth"] for node in topic["nodes"]}

    assert asked[site.address(0)] == 4321
    assert asked[site.address(1)] != 1234


async def test_topic_is_shown_whose_latency_only_some_nodes_measure():
    async with stub_site(nodes=2) as site:
        latency = {"count": 3, "percentiles": [{"quantile": 0.99, "value": 12_000_000}]}

        def measure(answer):
            for topic in answer.get("topics", [answer]):
                topic["e2e_processing_latency"] = latency
                for channel in topic["channels"]:
                    channel["e2e_processing_latency"] = latency

        site.nodes[0].edit = measure
        await site.get("/")

        async def measured():
            return "12 ms" in (await site.get(f"/topics/{TOPIC}")).text

        await site.until(measured, "the latency is shown")
        channel = await site.get(f"/topics/{TOPIC}/billing")

    assert channel.status == 200
    assert "99th" in channel.text


async def test_page_has_one_number_for_one_thing():
    async with stub_site(nodes=2) as site:
        began = time.monotonic()

        def grows(answer):
            for topic in answer["topics"]:
                for channel in topic["channels"]:
                    channel.update(depth=int(500 + 1000 * (time.monotonic() - began)), client_count=0)

        for node in site.nodes:
            node.edit = grows
        await site.round()
        await site.round()

        for path in (f"/topics/{TOPIC}/billing", f"/topics/{TOPIC}"):
            text = (await site.get(path)).text
            numbers = re.findall(r"([\d,]{4,}) messages (?:wait, no consumers|in 1 topic)", text)
            # The sentence, the tile or row, and with nodes their total.
            assert numbers
            assert text.count(numbers[0]) >= 2, text
