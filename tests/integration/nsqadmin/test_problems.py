"""Problems, each injected into a healthy cluster: each is named on the right page, and gone afterwards."""

import asyncio
import time

import pytest

from nsqclient.wire.durations import SECOND
from tests.support.stub_site import SOON_SILENT, stub_site

TOPIC = "topic.0001.events"
CHANNEL = f"{TOPIC}/billing"


def statistics(topic=TOPIC, channel="billing", **given):
    """An edit that changes statistics of a channel in a node's answers."""

    def edit(answer):
        for one in answer["topics"]:
            if one["topic_name"] == topic:
                for found in one["channels"]:
                    if found["channel_name"] == channel:
                        found.update(given)

    return edit


def of_topic(**given):
    def edit(answer):
        for one in answer["topics"]:
            if one["topic_name"] == TOPIC:
                one.update(given)

    return edit


def rising(key, step):
    """An edit with which a figure rises with each look."""
    began = time.monotonic()

    def edit(answer):
        statistics(**{key: int(1000 + (time.monotonic() - began) * step)})(answer)

    return edit


def growing():
    began = []

    def edit(answer):
        # The depth grows from the moment of the first answer.
        began.append(time.monotonic())
        passed = began[-1] - began[0]
        for one in answer["topics"]:
            if one["topic_name"] == TOPIC:
                channel = next(found for found in one["channels"] if found["channel_name"] == "billing")
                channel["depth"] = int(9000 + 300 * passed)
                channel["message_count"] += int(400 * passed)

    return edit


def health(answer):
    answer["health"] = "NOK - disk full"


def everywhere(edit):
    def inject(site):
        for node in site.nodes:
            node.edit = edit

    return inject


def on_one(edit):
    def inject(site):
        site.nodes[0].edit = edit

    return inject


def freeze(site):
    site.nodes[0].frozen.clear()


def refuse(site):
    site.nodes[0].answer = lambda *_: (500, b"{}")


def unlist(site):
    site.stubs.unlisted.add(0)


def heal(site):
    site.stubs.silent_lookupds.clear()
    site.stubs.unlisted.clear()
    for node in site.nodes:
        node.edit = None
        node.frozen.set()
        node.__dict__.pop("answer", None)


def lookups(*numbers):
    return lambda site: site.stubs.silent_lookupds.update(numbers)


def node(site):
    return site.address(0)


PROBLEMS = {
    "a channel has no consumers": (everywhere(statistics(depth=9, client_count=0)), "no consumers", CHANNEL),
    "a channel has no consumers on one node": (
        on_one(statistics(depth=9, client_count=0)),
        "no consumers",
        CHANNEL,
    ),
    "a topic is paused": (everywhere(of_topic(paused=True)), "paused", TOPIC),
    "a topic has no channel": (everywhere(of_topic(channels=[], depth=5)), "no channel", TOPIC),
    "messages time out": (everywhere(rising("timeout_count", 5)), "timing out", CHANNEL),
    "messages become dead letters": (everywhere(rising("dead_count", 5)), "dead letters", CHANNEL),
    "a queue grows": (everywhere(growing()), "growing", CHANNEL),
    "a node freezes": (freeze, "unreachable", node),
    "a node answers with errors": (refuse, "no statistics", node),
    "a node says that it is not well": (on_one(health), "unhealthy", node),
    "a node is not listed": (unlist, "not registered", node),
    "an nsqlookupd is down": (lookups(1), "nsqlookupd down", lambda site: site.lookupds[1]),
    "a limit of one's own is passed": (
        everywhere(statistics("topic.0002.events", depth=700)),
        "over limit",
        "topic.0002.events/billing",
    ),
    "a topic that is off has no consumers": (
        everywhere(statistics("topic.0000.events", depth=9, client_count=0)),
        "no consumers",
        "topic.0000.events/billing",
    ),
}


@pytest.fixture
async def site():
    options = {
        # On a busy machine answers are late, which must not count as a problem of the cluster.
        "http_client_request_timeout": 3 * SECOND,
        "alert_limits": ("topic.0002*:depth:1000", "topic.0000*:off"),
    }
    async with stub_site(nodes=3, lookupds=2, **options) as one:
        await one.get("/")
        yield one


@pytest.mark.parametrize("name", PROBLEMS)
async def test_problem_appears_and_ends(site, name):
    # Soon is ten seconds, and on a busy machine more: slow answers are requested less often (`until`).
    inject, kind, where = PROBLEMS[name]

    async def well():
        return not await site.problems()

    await site.round()
    await site.until(well, "the cluster is well")

    inject(site)
    place = where(site) if callable(where) else where

    async def named():
        return any(one[1:] == (kind, place) for one in await site.problems())

    await site.until(named, f"{kind} is named")
    path = f"/topics/{place}" if "/" in place or place == TOPIC else "/nodes"
    page = (await site.get(path)).text

    async def told():
        # nsqadmin may query the cluster between the two answers.
        serious = any(one[0] == "problem" and one[1:] == (kind, place) for one in await site.problems())
        return (f'state="{kind}"' in (await site.get("/metrics")).html) == serious

    await site.until(told, f"the metrics tell of {kind} if it is serious")
    heal(site)
    await site.until(well, "it is gone")
    assert (kind if kind != "nsqlookupd down" else "error") in page


async def test_limit_problem_stays_after_action_on_topic(site):
    topic = "topic.0002.events"
    everywhere(statistics(topic, depth=700))(site)

    await site.problem("problem", "over limit", f"{topic}/billing")
    # What an action does at its end, before the next round judges all topics.
    adder = site.daemon.collector.adder
    adder.changed(topic)

    assert "over limit" in {one.kind for one in adder.problems if one.topic == topic}


async def test_problem_of_frozen_node_stays_as_last_known():
    async with stub_site(nodes=2, **SOON_SILENT) as site:
        on_one(statistics(depth=9, client_count=0))(site)
        everywhere_else = site.nodes[1]
        everywhere_else.edit = statistics(client_count=0, depth=0)

        async def shown():
            problems = (await site.get("/?format=json")).json()["problems"]
            return next((one for one in problems if one["state"] == "no consumers"), None)

        before = await site.until(shown, "it is named")
        freeze(site)

        async def unjudged():
            return (await shown()).get("last_known")

        await site.until(unjudged, "it is only the last known state")
        page = (await site.get("/")).text
        heal(site)

        async def gone():
            return not await shown()

        after = await shown()
        await site.until(gone, "it is over")

    assert after is None or after["since"] == before["since"]
    assert f"last known: nsqd {site.address(0)} does not answer" in page


async def test_problem_of_node_that_answers_again_during_round_stays():
    async with stub_site(nodes=1, **SOON_SILENT) as site:
        site.nodes[0].edit = statistics(depth=9, client_count=0)
        await site.round()
        adder, work = site.daemon.collector.adder, site.daemon.collector.work
        member = site.daemon.collector.membership.members[site.address(0)]

        def found():
            return [one.last_known != "" for one in adder.problems if one.kind == "no consumers"]

        async def last_known():
            return found() == [True]

        async def answers():
            return member.error is None

        await site.until(lambda: asyncio.sleep(0, found() == [False]), "it is named")
        freeze(site)
        await site.until(last_known, "it is only the last known state")
        usual, rounds = work.in_thread, []

        async def while_node_answers(call):
            result = await usual(call)
            if not rounds:
                site.nodes[0].frozen.set()
                await site.until(answers, "the node answers during the round")
            rounds.append(found())
            return result

        work.in_thread = while_node_answers
        await site.until(lambda: asyncio.sleep(0, len(rounds) > 3), "some rounds are over")

    assert all(rounds)


async def test_problem_keeps_its_beginning_over_restart_with_history_file(tmp_path):
    options = {"history": True, "history_file": str(tmp_path / "history")}

    def bare(stubs):
        for one in stubs.nodes:
            one.edit = statistics(depth=9, client_count=0)

    sinces = []
    for _ in range(2):
        async with stub_site(nodes=1, before=bare, **options) as site:

            async def since(site=site):
                problems = (await site.get("/?format=json")).json()["problems"]
                return [one["since"] for one in problems if one["state"] == "no consumers"]

            await site.until(since, "it is named")
            await site.round()
            await site.round()
            sinces.append(await since())
            await asyncio.sleep(1.1)

    assert sinces[0] == sinces[1]


async def test_card_of_channel_without_consumers_names_last_consumers():
    async with stub_site(nodes=2) as site:

        async def seen():
            return all(
                any(one.startswith("GET /stats") and "include_clients" not in one for one in node.asked)
                for node in site.nodes
            )

        await site.until(seen, "each node was asked for its consumers")
        await site.round()
        everywhere(statistics(client_count=0, depth=40, clients=[]))(site)

        async def carded():
            page = await site.get("/")
            return "has no consumers" in page.text and page

        page = await site.until(carded, "the channel has a card")
        text = (await site.get("/?format=text")).text
        (problem,) = (await site.get("/?format=json")).json()["problems"]

    assert "app-1-0, app-1-1" in page.text.partition("Last seen with consumers at ")[2][:40]
    assert "last seen with consumers at" in text
    assert problem["last_consumers"] == "app-1-0, app-1-1"


async def test_returned_node_without_consumers_is_one_problem():
    def back(answer):
        answer["start_time"] += 60
        for topic in answer["topics"]:
            for channel in topic["channels"]:
                channel.update(client_count=0, depth=10)

    async with stub_site(nodes=2, topics=3, channels=2) as site:
        await site.round()
        on_one(back)(site)

        async def returned():
            return await site.problems() == {("warning", "returned", site.address(0))}

        await site.until(returned, "the node that is back is the only problem")
        page = await site.get("/")

    assert f"nsqd {site.address(0)} is back without its consumers" in page.text
    assert "6 channels with 60 messages there still have no consumers" in page.text
