"""The page of policies: those of each nsqd, the nodes that differ, and setting the same on all."""

import json
import re

import pytest

from tests.support.http_sink import HttpSink
from tests.support.nsqd_http import set_policy
from tests.support.processes import Cluster
from tests.support.site import ask, follow, submit
from tests.support.stub_site import SOON_SILENT, stub_site
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def daemons(tmp_path_factory):
    """Two nsqd and their nsqadmin, which the tests of this file share."""
    cluster = Cluster(tmp_path_factory.mktemp("policies"))
    nsqds = [cluster.nsqd(), cluster.nsqd()]
    cluster.nsqadmin(*[f"--nsqd-http-address={nsqd.http_address}" for nsqd in nsqds])
    yield cluster.daemons
    for daemon in cluster.daemons:
        assert "Traceback" not in daemon.logs()
    cluster.close()


@pytest.fixture
def nsqds(daemons):
    """The shared nsqd, without policies and topics before each test."""
    nsqds = daemons[:2]
    for nsqd in nsqds:
        for name in names(nsqd):
            assert nsqd.request("DELETE", f"/policies?name={name}")[0] == 200
        for topic in nsqd.get("/stats?format=json")["topics"]:
            nsqd.post(f"/topic/delete?topic={topic['topic_name']}")
    return nsqds


@pytest.fixture
def admin(daemons, nsqds):
    return daemons[2]


def post(admin, action="set_policy", **fields):
    return submit(admin, action=action, **fields)


def names(nsqd):
    return [policy["name"] for policy in nsqd.get("/policies")["policies"]]


def test_nodes_that_differ_are_seen(admin, nsqds):
    assert "differs" not in ask(admin, "GET", "/policies").text
    set_policy(nsqds[0], ".*", name="a", max_depth=5)

    page = ask(admin, "GET", "/policies")

    assert page.status == 200
    assert "differs" in page.text
    assert '{"max_depth": 5}' in page.text
    found = json.loads(ask(admin, "GET", "/policies?format=json").body)
    assert sorted(len(node["policies"]) for node in found["nodes"]) == [0, 1]  # in the order of their names
    assert len({node["digest"] for node in found["nodes"]}) == 2


def test_policies_are_shown_and_set_while_no_nsqlookupd_answers(cluster):
    lookupd = cluster.nsqlookupd()
    nsqd = cluster.nsqd(f"--lookupd-tcp-address={lookupd.tcp_address}")
    admin = cluster.nsqadmin(f"--lookupd-http-address={lookupd.http_address}")
    wait_until(lambda: nsqd.http_address in ask(admin, "GET", "/nodes").text, "nsqadmin to know nsqd")
    lookupd.kill()
    wait_until(lambda: "unreachable" in ask(admin, "GET", "/nodes").text, "its silence is noticed")

    page = ask(admin, "GET", "/policies")
    text = follow(admin, post(admin, name="a", topic="^t$", definition='{"ttl": "1h"}')).text

    assert page.status == 200
    assert lookupd.http_address in page.text  # it is named as not answering
    assert "Policy a was set on 1 node" in text
    assert names(nsqd) == ["a"]


def test_node_that_refuses_is_named_with_its_sentence(admin, nsqds):
    for nsqd in nsqds:
        nsqd.post("/topic/create?topic=t")
    nsqds[1].post("/channel/create?topic=t&channel=c")
    nsqds[1].post("/mpub?topic=t", b"1\n2")
    fields = {"name": "a", "topic": ".*", "definition": '{"max_depth": 1, "when_full": "drop-oldest"}'}

    text = follow(admin, post(admin, **fields)).text

    assert "on 1 node" in text
    assert "channel t/c would drop the oldest 1 of 2 messages" in text
    assert (names(nsqds[0]), names(nsqds[1])) == (["a"], [])
    assert "on 2 nodes" in follow(admin, post(admin, apply="true", **fields)).text


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"definition": "{}"}, "A policy needs a name."),
        ({"name": "a", "definition": "max_depth"}, "A definition is a JSON object"),
        ({"name": "a", "definition": "[]"}, "A definition is a JSON object."),
        ({"name": "a", "definition": "{}", "priority": "high"}, "a priority a whole number"),
    ],
)
def test_incomplete_policy_form_is_shown_again(admin, nsqds, fields, sentence):
    answer = post(admin, **fields)

    assert answer.status == 422
    assert sentence in answer.text
    assert names(nsqds[0]) == []


@pytest.mark.parametrize(
    "fields", [{"topic": "(", "definition": "{}"}, {"topic": "^o$", "definition": '{"max_attempt": 3}'}]
)
def test_preview_of_invalid_policy_is_refused_and_form_keeps_its_content(admin, nsqds, fields):
    answer = post(admin, confirmed="", name="wrong", priority="7", **fields)

    assert answer.status == 422
    assert nsqds[0].http_address in answer.text
    assert "Set on all nodes" not in answer.text
    for value in ("wrong", "7", fields["topic"]):
        assert f'value="{value}"' in answer.body.decode()
    assert names(nsqds[0]) == []


def test_unknown_node_and_unknown_policy_are_404(admin):
    assert post(admin, action="copy_policies", node="127.0.0.1:1").status == 404
    assert post(admin, action="delete_policy", name="none").status == 404


def test_audit_names_policy_change_and_nodes(admin, nsqds):
    set_policy(nsqds[0], ".*", name="a", ttl="1h")
    set_policy(nsqds[1], ".*", name="a", ttl="1h")
    post(admin, name="a", topic="t", definition='{"ttl": "2h"}')
    post(admin, name="a", topic="t", definition='{"ttl": 7}')

    refused, done, *_ = json.loads(ask(admin, "GET", "/audit?format=json").body)["changes"]

    assert (done["action"], done["ok"]) == ("set_policy", True)
    assert (done["before"]["policy"], done["before"]["definition.ttl"]) == ("a", "1h")
    assert done["after"]["definition.ttl"] == "2h"
    assert done["results"] == {nsqd.http_address: "done" for nsqd in nsqds}
    assert not refused["ok"]
    assert set(refused["results"]) == set(done["results"])


def test_policy_change_is_previewed_by_field_and_effect(admin, nsqds):
    for nsqd in nsqds:
        set_policy(nsqd, ".*", name="a", max_depth=5)
        nsqd.create("orders", "billing")
    wait_until(
        lambda: "1 topic, 1 channel" in ask(admin, "GET", "/policies").text, "the page shows where it counts"
    )
    fields = {
        "name": "b",
        "topic": "^orders$",
        "channel": "^bill",
        "priority": "3",
        "definition": '{"ttl": "1h"}',
    }

    new = post(admin, confirmed="", **fields)
    other = post(admin, confirmed="", name="a", topic=".*", definition='{"max_depth": 6}')
    gone = post(admin, confirmed="", action="delete_policy", name="a")

    assert [answer.status for answer in (new, other, gone)] == [200, 200, 200]
    assert "Another policy applies to 1 channel: orders/billing: a → b" in new.text
    assert re.search(r"max_depth 5 6", other.text)
    assert "Another policy applies to 1 topic, 1 channel" in other.text
    assert "orders: a → none" in gone.text
    assert [names(nsqd) for nsqd in nsqds] == [["a"], ["a"]]


def test_nodes_with_other_effects_are_shown_apart(admin, nsqds):
    set_policy(nsqds[0], ".*", name="a", max_depth=5)

    question = post(admin, confirmed="", action="copy_policies", node=nsqds[0].http_address)

    assert f"{nsqds[1].http_address} a new" in question.text
    assert f"{nsqds[0].http_address} Nothing changes there." in question.text


def test_policy_change_that_was_not_previewed_is_refused(admin, nsqds):
    question = post(admin, confirmed="", name="a", topic="t", definition='{"ttl": "1h"}').body.decode()
    (seen,) = re.findall(r'name="shown" value="([^"]+)"', question)
    set_policy(nsqds[1], ".*", name="b", max_depth=5)

    late = post(admin, name="a", topic="t", definition='{"ttl": "1h"}', shown=seen)
    (now,) = re.findall(r'name="shown" value="([^"]+)"', late.body.decode())

    assert late.status == 409
    assert "this is what it would do now" in late.text
    assert names(nsqds[0]) == []
    assert post(admin, name="a", topic="t", definition='{"ttl": "1h"}', shown=now).status == 303


def test_policy_page_explains_which_policy_counts(admin, nsqds):
    for nsqd in nsqds:
        set_policy(nsqd, ".*", name="a", max_depth=5)
        set_policy(nsqd, "^t$", name="b", priority=7, ttl="1h")

    assert "priority 7 is the highest; does not count: a (0)" in ask(admin, "GET", "/policies?topic=t").text
    assert "the only one that matches, by .*" in ask(admin, "GET", "/policies?topic=other").text


async def test_node_that_does_not_answer_is_named_and_not_waited_for():
    async with stub_site(nodes=2, **SOON_SILENT) as site:
        silent, node = site.address(1), site.nodes[1]
        usual = site.nodes[0].answer
        none = 200, b'{"policies":[],"digest":"d"}'
        site.nodes[0].answer = lambda method, path, query: (
            none if path == "/policies" else usual(method, path, query)
        )
        node.frozen.clear()

        async def noticed():
            return "unreachable" in (await site.get("/nodes")).text

        await site.until(noticed, "its silence is noticed")
        node.asked.clear()
        page = (await site.get("/policies")).text
        told = (await site.get("/policies?format=json")).json()
        asked = [one for one in node.asked if "/policies" in one]
        node.frozen.set()

    assert silent in page
    assert silent in told["message"]
    assert [one["node"] for one in told["nodes"]] == [site.address(0)]
    assert not asked


async def test_change_without_answer_is_in_audit_log_and_notified():
    with HttpSink() as sink:
        options = {"notification_http_endpoint": f"http://127.0.0.1:{sink.port}/", **SOON_SILENT}
        async with stub_site(nodes=1, **options) as site:
            node = site.nodes[0]
            usual = node.answer

            def falls_silent(method, path, query):
                if path != "/policies":
                    return usual(method, path, query)
                node.frozen.clear()
                return 200, b'{"policies":[],"digest":"d"}'

            node.answer = falls_silent
            fields = {"name": "a", "topic": "t", "definition": '{"ttl": "1h"}', "apply": "true"}
            failed = await site.submit(action="set_policy", **fields)
            (entry,) = (await site.get("/audit?format=json")).json()["changes"]
            metrics = (await site.get("/metrics")).html
            log = site.log

            async def told():
                return sink.received

            (post,) = await site.until(told, "the endpoint gets it")

    assert failed.status == 502
    assert (entry["action"], entry["ok"], entry["after"]["policy"]) == ("set_policy", False, "a")
    assert "timed out after 2s" in entry["results"][site.address(0)]
    assert "set_policy failed" in log
    assert json.loads(post.body)["action"] == "set_policy"
    assert 'nsqadmin_admin_actions_total{action="set_policy"} 1.0' in metrics
