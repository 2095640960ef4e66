"""The pages of messages: they show messages of all nsqds together, and act on them there."""

import html
import json
import re
from urllib.parse import quote, urlencode

import pytest

from tests.support.nsqd_http import set_policy
from tests.support.processes import Cluster
from tests.support.site import ask
from tests.support.stub_site import stub_site
from tests.support.waiting import wait_until
from tests.support.wire import Wire, req

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def look(site, headers=None, path="/messages", **query):
    return ask(site.admin, "GET", f"{path}?{urlencode(query)}", headers=headers)


def listed(site, **query):
    """The messages of a list, as JSON, one list for each page."""
    found, go = [], ""
    while True:
        answer = json.loads(look(site, format="json", **query, go=go).body)
        found.append(answer["messages"])
        go = answer["onward"]
        if not go:
            return found


def bodies(pages):
    return [one["body"] for page in pages for one in page]


def act(site, **fields):
    return ask(site.admin, "POST", "/action", urlencode({"confirmed": "yes", **fields}), FORM)


def told(site, answer):
    """The text of the page to which a form leads."""
    assert answer.status == 303, answer.text
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    return ask(site.admin, "GET", answer.headers["Location"], headers={"Cookie": cookie}).text


def one_of(site, topic, **query):
    ((first, *_),) = listed(site, topic=topic, **query)
    return first


def knows(admin, topic, headers):
    """Wait until an nsqadmin has heard of a topic and all its nodes."""
    path = f"/topics/{topic}?format=json"

    def known():
        answer = ask(admin, "GET", path, headers=headers)
        return answer.status == 200 and json.loads(answer.body)["nodes_total"] == 2

    wait_until(known, f"{topic} is known")


def stats(nsqd, topic, channel):
    (found,) = nsqd.get(f"/stats?format=json&topic={topic}")["topics"]
    return next(one for one in found["channels"] if one["channel_name"] == channel)


def publish(nsqd, topic, body, **headers):
    """Publish a message with headers."""
    nsqd.post(f"/pub_ext?topic={topic}&ext={quote(json.dumps(headers))}", body)


def defer(nsqd, topic, *bodies):
    for body in bodies:
        nsqd.post(f"/pub?topic={topic}&defer=3000000", body)


def test_messages_of_all_nodes_are_one_list_in_order_of_time(site):
    site.fill("mixed", "a", messages=0)
    for number in range(120):
        site.nsqds[number % 2].post("/pub?topic=mixed", f"m{number:03}".encode())

    newest = listed(site, topic="mixed")
    oldest = listed(site, topic="mixed", order="oldest")

    assert [len(page) for page in newest] == [50, 50, 20]
    assert bodies(oldest) == [f"m{number:03}" for number in range(120)]
    assert bodies(newest) == bodies(oldest)[::-1]
    assert {one["node"] for one in newest[0]} == {nsqd.http_address for nsqd in site.nsqds}
    # Looking at the messages has consumed none.
    assert sum(stats(nsqd, "mixed", "a")["depth"] for nsqd in site.nsqds) == 120


def test_list_begins_at_a_time_id_or_what_contains_text(site):
    site.fill("found", "a", messages=0)
    for number in range(20):
        site.nsqds[number % 2].post(
            "/pub?topic=found", json.dumps({"n": number, "text": f"<{number}>"}).encode()
        )
    third = next(one for page in listed(site, topic="found") for one in page if one["body"]["n"] == 3)

    assert [one["n"] for one in bodies(listed(site, topic="found", json="n=7"))] == [7]
    assert [one["n"] for one in bodies(listed(site, topic="found", contains="<1", order="oldest"))] == [
        1,
        *range(10, 20),
    ]
    assert len(bodies(listed(site, topic="found", start="-10m", order="oldest"))) == 20
    assert bodies(listed(site, topic="found", start=third["time"], order="oldest"))[0]["n"] == 3
    # An id belongs to one node: the list has that node's messages from the id on, and no others.
    from_id = listed(site, topic="found", start=third["id"], order="oldest")
    assert bodies(from_id)[0]["n"] == 3
    assert {one["node"] for page in from_id for one in page} == {third["node"]}
    only = listed(site, topic="found", node=site.nsqds[0].http_address)
    assert len(bodies(only)) == 10


def test_meaningless_input_is_reported(site):
    site.fill("asked", "a")

    wrong = look(site, topic="asked", start="soon")
    unknown = look(site, topic="asked", node="127.0.0.1:1")

    assert wrong.status == 400
    assert "is no sequence, id or time" in wrong.text
    assert look(site, topic="asked", start="soon", format="json").status == 400
    assert unknown.status == 404
    assert look(site, topic="missing").status == 404
    assert look(site, topic="a topic").status == 404
    assert look(site, topic="asked", channel="missing").status == 404
    assert look(site, topic="asked", go="rubbish").status == 200


def test_states_of_channel_are_told_apart(site):
    site.fill("states", "a")
    defer(site.nsqds[0], "states", b"later")
    with Wire(("127.0.0.1", site.nsqds[0].tcp_port)) as client:
        client.identify(client_id="app-7")
        client.subscribe("states", "a", ready=1)
        client.message()

        flying = one_of(site, "states", channel="a", state="in_flight")
        page = look(site, topic="states", channel="a", state="in_flight").text

        assert flying["client"]["client_id"] == "app-7"
        assert "with app-7 at 127.0.0.1:" in page
        assert (
            "1 attempt"
            in look(
                site, path="/messages/one", topic="states", channel="a", node=flying["node"], id=flying["id"]
            ).text
        )
    assert bodies(listed(site, topic="states", channel="a", state="deferred")) == ["later"]
    assert len(bodies(listed(site, topic="states", channel="a", state="waiting"))) == 6


def test_message_is_shown_whole_as_json_as_text_and_as_bytes(site):
    site.fill("whole", "a", messages=0)
    body = b'{"user": {"name": "<b>Ann</b>", "ids": [1, 2.50]},   "ok": true}'
    publish(site.nsqds[0], "whole", body, tenant="blue")
    site.nsqds[0].post("/pub?topic=whole", bytes(range(256)))
    binary, text = bodies_and_places(site)

    folded = look(site, path="/messages/one", **text)
    as_text = look(site, path="/messages/one", **text, **{"as": "text"})
    as_hex = look(site, path="/messages/one", **text, **{"as": "hex"}).text
    raw = look(site, path="/messages/body", **text)
    bytes_of = look(site, path="/messages/one", **binary).text

    assert "{ } 2 keys" in folded.text
    assert "<details open>" in folded.body.decode()
    assert "2.50" in folded.text
    assert "<b>Ann" not in folded.body.decode()
    assert "tenant" in folded.text
    assert "blue" in folded.text
    assert '"user":{"name"' in as_text.text
    assert "7b 22 75 73 65 72" in as_hex
    assert "00000010 10 11 12" in bytes_of
    # The body is sent byte for byte as it was published, and never as a page of nsqadmin.
    assert raw.body == body
    assert raw.headers["Content-Disposition"].startswith("attachment")
    assert raw.headers["Content-Type"] == "application/octet-stream"
    assert look(site, path="/messages/body", **{**text, "id": "0" * 16}).status == 404
    assert look(site, path="/messages/body", **{**text, "id": "../x"}).status == 400


def test_message_page_leads_to_previous_and_the_next_message(site):
    site.fill("walked", "a", messages=0)
    for body in ("one", "two", "three"):
        site.nsqds[0].post("/pub?topic=walked", body.encode())
    wait_until(
        lambda: len(bodies(listed(site, topic="walked", channel="a", state="waiting"))) == 3, "all wait"
    )
    ((first, *_, last),) = listed(site, topic="walked", channel="a", order="oldest", state="waiting")

    def walked(message, word):
        """The bodies on the way from *message* along its links."""
        path, found = f"/messages/one?{urlencode(message)}", []
        while True:
            page = ask(site.admin, "GET", path)
            found.append(re.search(r'aria-label="Body as text">([^<]*)', page.body.decode())[1])
            link = re.search(rf'rel="{word}" href="([^"]+)"', page.body.decode())
            if link is None:
                return found
            path = html.unescape(link[1])

    place = {"topic": "walked", "channel": "a", "state": "waiting"}

    assert walked({**place, "node": first["node"], "id": first["id"]}, "next") == ["one", "two", "three"]
    assert walked({**place, "node": last["node"], "id": last["id"]}, "prev") == ["three", "two", "one"]


def test_body_is_passed_on_with_its_numbers_as_they_were_written(site):
    site.fill("exact", "a", messages=0)
    body = b'{"x":1e999,"price":1.10,"text":"<b>"}'
    site.nsqds[0].post("/pub?topic=exact", body)
    page = look(site, topic="exact")
    found = one_of(site, "exact")

    answers = [
        look(site, topic="exact", format="json"),
        look(site, path="/messages/one", topic="exact", node=found["node"], id=found["id"], format="json"),
    ]

    assert page.status == 200
    for answer in answers:
        assert answer.status == 200
        # A browser must not take a part of it for markup.
        assert b'{"x":1e999,"price":1.10,"text":"\\u003cb\\u003e"}' in answer.body


async def test_node_with_unreadable_body_is_named_beside_messages_of_others():
    def told(encoding, body):
        one = {"id": "0123456789abcdef", "sequence": 1, "timestamp": 1, "time": "", "size": 2}
        message = one | {"encoding": encoding, "body": body}
        return json.dumps({"messages": [message], "first": 1, "end": 2}).encode()

    def answers(node, said):
        usual = node.answer
        node.answer = lambda method, path, query: (
            (200, said) if path == "/messages" else usual(method, path, query)
        )

    for nonsense in (("text", {"a": 1}), ("base64", "no!")):
        async with stub_site(nodes=2, topics=1) as site:
            await site.get("/")
            answers(site.nodes[0], told("text", "good"))
            answers(site.nodes[1], told(*nonsense))
            page = await site.get("/messages?topic=topic.0000.events")
            shown = (await site.get("/messages?topic=topic.0000.events&format=json")).json()
            liar = site.address(1)

        assert page.status == 200
        assert "good" in page.text
        assert liar in page.text
        assert [one["body"] for one in shown["messages"]] == ["good"]
        assert [liar in warning for warning in shown["warnings"]] == [True]


def bodies_and_places(site):
    ((newest, oldest),) = listed(site, topic="whole")
    return [{"topic": "whole", "node": one["node"], "id": one["id"]} for one in (newest, oldest)]


def test_message_is_published_with_headers_from_page(site):
    site.fill("tried", "a", messages=0)
    question = look(site, path="/action", action="publish", topic="tried")
    node = site.nsqds[1].http_address

    done = act(
        site, action="publish", topic="tried", node=node, body="a\r\nb", headers="tenant: blue\r\nkind: test"
    )
    text = told(site, done)

    assert "Publish to topic tried" in question.text
    assert f"A message of 3 bytes was published to tried on {node}." in text
    found = one_of(site, "tried")
    assert (found["node"], found["body"], found["headers"]) == (
        node,
        "a\nb",
        {"tenant": "blue", "kind": "test"},
    )
    wrong = act(site, action="publish", topic="tried", node=node, body="x", headers="no colon")
    assert wrong.status == 422
    assert "no colon is no header" in wrong.text
    assert act(site, action="publish", topic="tried", node=node, body="x", defer="soon").status == 422
    assert act(site, action="publish", topic="tried", node="127.0.0.1:1", body="x").status == 404
    told(site, act(site, action="publish", topic="tried", node=node, body="later", defer="1h"))
    assert bodies(listed(site, topic="tried", channel="a", state="deferred")) == ["later"]
    audit = json.loads(ask(site.admin, "GET", "/audit?format=json").body)["changes"]
    assert [entry["ok"] for entry in audit if entry["action"] == "publish_message"] == [True, False, True]
    assert b"later" not in ask(site.admin, "GET", "/audit").body


def test_deferred_messages_are_sent_now_or_cancelled(site):
    site.fill("put-off", "a", messages=0)
    for nsqd in site.nsqds:
        defer(nsqd, "put-off", b"keep", b"drop", b"keep")
    which = {"topic": "put-off", "channel": "a", "state": "deferred"}

    question = look(site, path="/action", action="cancel", contains="drop", **which).text
    cancelled = told(site, act(site, action="cancel", contains="drop", **which))
    first = one_of(site, "put-off", channel="a", state="deferred")
    single = look(site, path="/action", action="send", **which, node=first["node"], id=first["id"]).text
    one = told(site, act(site, action="send", **which, node=first["node"], id=first["id"]))
    rest = told(site, act(site, action="send", **which))

    assert "2 messages on 2 nsqds would be discarded." in question
    assert "2 messages of put-off/a were discarded." in cancelled
    assert "Delivered now" in single
    assert "1 message of put-off/a was sent." in one
    assert "3 messages of put-off/a were sent." in rest
    assert [stats(nsqd, "put-off", "a")["depth"] for nsqd in site.nsqds] == [2, 2]
    again = act(site, action="send", **which, node=first["node"], id=first["id"])
    assert again.status == 502
    assert "NOT_DEFERRED" in again.text


def test_poison_message_is_finished_and_others_requeued_later(site):
    site.fill("poison", "a", "b")
    first = one_of(site, "poison", channel="a")
    which = {"topic": "poison", "channel": "a"}

    told(site, act(site, action="finish", **which, node=first["node"], id=first["id"]))
    later = told(site, act(site, action="requeue", **which, state="waiting", defer="1h"))

    assert "5 messages of poison/a were requeued." in later
    assert sum(stats(nsqd, "poison", "a")["deferred_count"] for nsqd in site.nsqds) == 5
    assert sum(stats(nsqd, "poison", "b")["depth"] for nsqd in site.nsqds) == 6


@pytest.mark.parametrize("entry", ["finish", "requeue", "send_back"])
def test_messages_outside_list_from_position_are_not_touched(site, entry):
    topic = f"partly-{entry}"
    site.fill(topic, "a", messages=0)
    for body in (b"one", b"two", b"three"):
        site.nsqds[0].post(f"/pub?topic={topic}", body)
    ((_, second, _),) = listed(site, topic=topic)
    place = {"topic": topic, "channel": "a", "start": second["id"]}

    newest = look(site, **place)
    question = look(site, path="/action", action=entry, **place).text
    refused = act(site, action=entry, **place)

    assert bodies(listed(site, **place)) == ["two", "one"]
    assert "all of these…" not in newest.text
    assert "list the oldest first, or leave From empty" in question
    assert refused.status == 422
    assert "Nothing was done: a list with From" in refused.text
    assert stats(site.nsqds[0], topic, "a")["depth"] == 3


def test_messages_from_position_on_are_finished_oldest_first(site):
    site.fill("onward", "a", messages=0)
    for body in (b"one", b"two", b"three"):
        site.nsqds[0].post("/pub?topic=onward", body)
    ((_, second, _),) = listed(site, topic="onward")
    place = {"topic": "onward", "channel": "a", "order": "oldest", "start": second["id"]}

    page = look(site, **place).text
    question = look(site, path="/action", action="finish", **place).text
    done = told(site, act(site, action="finish", **place))

    assert "Finish all of these…" in page
    assert f"from {second['id']} on" in question
    assert "2 messages of onward/a were finished." in done
    # The other node does not know the id, and has nothing of the list.
    assert "Not everywhere" not in done
    assert bodies(listed(site, topic="onward", channel="a", state="waiting")) == ["one"]


def test_deferred_messages_are_found_by_due_time_and_not_by_publish_time(site):
    site.fill("due", "a", messages=0)
    defer(site.nsqds[0], "due", b"later")
    place = {"topic": "due", "channel": "a", "state": "deferred", "order": "oldest", "start": "-10m"}

    page = look(site, **place).text
    refused = act(site, action="cancel", **place)

    assert "Cancel all of these…" not in page
    assert refused.status == 422
    assert "leave From empty" in refused.text
    assert stats(site.nsqds[0], "due", "a")["deferred_count"] == 1


def test_dead_letters_are_inspected_counted_and_sent_back(site):
    for nsqd in site.nsqds:
        set_policy(nsqd, "^sick$", name="sick", channel=".*", max_attempts=1)
    site.fill("sick", "a", "other", messages=3)
    for nsqd in site.nsqds:
        with Wire(("127.0.0.1", nsqd.tcp_port)) as client:
            client.identify()
            client.subscribe("sick", "a", ready=3)
            for _ in range(3):
                client.send(req(client.message(), 0))
            wait_until(
                lambda nsqd=nsqd: (
                    "sick.a.dead" in [one["topic_name"] for one in nsqd.get("/stats?format=json")["topics"]]
                    and stats(nsqd, "sick", "a")["dead_count"] == 3
                ),
                "all are dead letters",
            )

    led = look(site, topic="sick", channel="a", state="dead")
    place = {"topic": "sick.a.dead"}
    wait_until(lambda: look(site, **place).status == 200, "nsqadmin knows the topic")
    page = look(site, **place).text
    card = ask(site.admin, "GET", "/topics/sick.a.dead").body.decode()
    letter = one_of(site, "sick.a.dead")
    question = look(site, path="/action", action="send_back", **place).text
    one = told(site, act(site, action="send_back", **place, node=letter["node"], id=letter["id"]))
    rest = told(site, act(site, action="send_back", **place))
    # What was sent back to one channel is not for the other.
    seek = {"action": "seek", "topic": "sick", "channel": "other", "to": "earliest"}
    preview = look(site, path="/action", **seek).text
    said = told(site, act(site, **seek, shown="earliest"))

    assert re.search(r'href="/action\?action=send_back&amp;topic=sick.a.dead"\s+data-dialog', card)
    assert "→ 6." in preview
    assert "its backlog from there on is 6 messages" in said
    assert look(site, topic="sick", state="dead").status == 404
    assert (led.status, led.headers["Location"]) == (303, "/messages?topic=sick.a.dead")
    assert "sick / a requeued after 1 attempt" in page
    assert "6 messages on 2 nsqds would be sent back." in question
    assert "1 message of sick.a.dead was sent back." in one
    assert "5 messages of sick.a.dead were sent back." in rest
    assert sum(stats(nsqd, "sick", "a")["depth"] for nsqd in site.nsqds) == 6


def test_seek_shows_its_effect_before_confirmation(site):
    for nsqd in site.nsqds:
        set_policy(nsqd, "^again$", name="again", retain_time="1h")
    site.fill("again", "a", messages=4)
    for nsqd in site.nsqds:
        nsqd.post("/channel/empty?topic=again&channel=a")
    place = {"action": "seek", "topic": "again", "channel": "a"}

    empty = look(site, path="/action", **place).text
    question = look(site, path="/action", **place, to="earliest").text
    text = told(site, act(site, **place, to="earliest", shown="earliest"))
    nonsense = act(site, **place, to="soon", shown="soon")

    assert "Preview" in empty
    assert "Backlog 0 → 8." in question
    assert "Channel again/a was set on 2 nsqds; its backlog from there on is 8 messages." in text
    assert [stats(nsqd, "again", "a")["depth"] for nsqd in site.nsqds] == [4, 4]
    assert nonsense.status == 422
    assert "Nothing was done" in nonsense.text
    one = told(site, act(site, **place, to="latest", shown="latest", node=site.nsqds[0].http_address))
    assert "was set on 1 nsqd" in one
    assert [stats(nsqd, "again", "a")["depth"] for nsqd in site.nsqds] == [0, 4]


def test_viewer_sees_messages_without_bodies(site, cluster_admin):
    site.fill("secret", "a", messages=0)
    publish(site.nsqds[0], "secret", b"the salary", tenant="blue")
    found = one_of(site, "secret")
    place = urlencode({"topic": "secret", "node": found["node"], "id": found["id"]})
    viewer, reader, operator = ({"X-Forwarded-User": name} for name in ("vera", "rita", "otto"))
    knows(cluster_admin, "secret", viewer)

    for path in ("/messages?topic=secret", f"/messages/one?{place}", f"/messages/one?{place}&as=hex"):
        for form in ("", "&format=json"):
            shown = ask(cluster_admin, "GET", path + form, headers=viewer)
            assert shown.status == 200
            assert b"salary" not in shown.body
            assert b"blue" not in shown.body
            assert b"73 61 6c 61 72 79" not in shown.body
            read = ask(cluster_admin, "GET", path + form, headers=reader)
            assert b"salary" in read.body or b"73 61 6c 61 72 79" in read.body or "hex" in path
    # A user who may not read messages cannot find out their content by filters.
    for path in (
        f"/messages/body?{place}",
        "/messages?topic=secret&contains=salary",
        "/messages?topic=secret&json=a=1",
    ):
        assert ask(cluster_admin, "GET", path, headers=viewer).status == 403
        assert ask(cluster_admin, "GET", path, headers=reader).status == 200
    assert "Publish…" not in ask(cluster_admin, "GET", "/messages?topic=secret", headers=reader).text
    assert "Publish…" in ask(cluster_admin, "GET", "/messages?topic=secret", headers=operator).text


def test_messages_with_trace_link_to_it(site, cluster_admin):
    site.fill("traced", "a", messages=0)
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    publish(site.nsqds[0], "traced", b"with", traceparent=trace)
    site.nsqds[0].post("/pub?topic=traced", b"without")

    knows(cluster_admin, "traced", {"X-Forwarded-User": "vera"})
    page = ask(
        cluster_admin, "GET", "/messages?topic=traced", headers={"X-Forwarded-User": "rita"}
    ).body.decode()
    hidden = ask(
        cluster_admin, "GET", "/messages?topic=traced", headers={"X-Forwarded-User": "vera"}
    ).body.decode()

    assert re.findall(r'href="(https://traces[^"]*)"', html.unescape(page)) == [
        "https://traces.example/t/4bf92f3577b34da6a3ce929d0e0e4736?x=1"
    ]
    assert "traces.example" not in hidden


@pytest.mark.parametrize("path", ["/messages", "/messages/one", "/messages/body", "/action"])
def test_page_of_another_site_cannot_search_messages(site, path):
    picture = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image", "Sec-Fetch-Mode": "no-cors"}
    frame = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe", "Sec-Fetch-Mode": "navigate"}
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document", "Sec-Fetch-Mode": "navigate"}
    query = {"topic": "embedded", "channel": "a", "action": "finish", "state": "waiting", "id": "0" * 16}
    site.fill("embedded", "a")

    statuses = [look(site, one, path, **query).status for one in (picture, frame, link)]

    assert statuses[:2] == [403, 403]
    assert statuses[2] != 403


@pytest.fixture(scope="module")
def cluster_admin(site, tmp_path_factory):
    """A second nsqadmin of the same cluster, with users of different roles."""
    cluster = Cluster(tmp_path_factory.mktemp("people"))
    try:
        yield cluster.nsqadmin(
            f"--lookupd-http-address={site.lookupd.http_address}",
            "--role=viewer:user=vera",
            "--role=reader:user=rita",
            "--role=operator:user=otto",
            "--trace-url=https://traces.example/t/{trace_id}?x=1",
            "--collect-interval=300ms",
        )
    finally:
        cluster.close()
