"""Policies of a running nsqd: from a file, over HTTP, and after a restart."""

import json
import signal

import pytest

from tests.support.processes import ignores_or_handles, listens
from tests.support.waiting import wait_until

FILE = """
[policies.orders]
topic = "^orders$"
priority = 10
definition = { max_depth = 100 }
"""


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "policies.toml"
    file.write_text(FILE)
    return file


def put(node, name, topic=".*", query="", **definition):
    return node.request(
        "PUT",
        f"/policies?name={name}{query}",
        json.dumps({"topic": topic, "definition": definition}).encode(),
    )


def names(node):
    return [policy["name"] for policy in node.get("/policies")["policies"]]


def in_force(node, topic, channel=""):
    found = node.get(f"/policies?topic={topic}&channel={channel}")["in_force"]
    return found["policy"], found["definition"]


def refused(answer, status=400):
    assert answer[0] == status, answer
    return json.loads(answer[1])["message"]


def test_node_without_policies_says_so(node):
    answer = node.get("/policies?topic=t")

    assert answer["policies"] == []
    assert answer["in_force"] == {"topic": "t", "channel": "", "policy": None, "definition": {}}


def test_policy_set_over_http_applies_and_survives_restart(node, restart):
    assert put(node, "a", "^orders$", max_depth=5)[0] == 200
    digest = node.get("/policies")["digest"]

    restart(node)

    assert node.get("/policies")["digest"] == digest
    assert in_force(node, "orders", "billing") == ("a", {"max_depth": 5})
    assert in_force(node, "other") == (None, {})


def test_policy_is_replaced_and_taken_away(node):
    put(node, "a", max_depth=5)
    put(node, "a", max_depth=6)
    assert in_force(node, "t") == ("a", {"max_depth": 6})

    assert node.request("DELETE", "/policies?name=a")[0] == 200
    assert names(node) == []
    assert refused(node.request("DELETE", "/policies?name=a"), 404) == "POLICY_NOT_FOUND"


def test_policies_of_another_node_are_set(cluster, node):
    put(node, "a", max_depth=5)
    put(node, "b", "^t", ttl="1h")
    other = cluster.nsqd()
    put(other, "c", max_depth=9)

    assert other.request("PUT", "/policies", node.request("GET", "/policies")[1])[0] == 200

    assert other.get("/policies") == node.get("/policies")


INVALID = [
    ("?name=a", b"", "it is no JSON"),
    ("?name=a%20b", b"{}", "policy 'a b': a name is 1 to 64 of the characters .a-zA-Z0-9_-"),
    ("?name=a", b'{"topic": "(", "definition": {"ttl": "1h"}}', "policy a: topic is no pattern"),
    ("?name=a", b'{"topic": "t", "definition": {"ttk": "1h"}}', "did you mean ttl?"),
    ("", b"{}", "a list of policies"),
    ("?name=a&apply=perhaps", b"{}", "INVALID_APPLY"),
]


def test_invalid_policy_is_refused_and_changes_nothing(node):
    put(node, "before", max_depth=5)

    for query, body, sentence in INVALID:
        assert sentence in refused(node.request("PUT", f"/policies{query}", body))
    assert names(node) == ["before"]


BAD_NAMES = [
    ("?topic=b@d", "INVALID_ARG_TOPIC"),
    ("?topic=t&channel=b@d", "INVALID_ARG_CHANNEL"),
    ("?channel=c", "MISSING_ARG_TOPIC"),
]


def test_question_about_no_name_is_refused(node):
    for query, code in BAD_NAMES:
        assert refused(node.request("GET", f"/policies{query}")) == code


def test_policy_that_deletes_messages_needs_apply(node):
    node.create("t", "c")
    node.post("/mpub?topic=t", b"1\n2\n3")

    answer = put(node, "a", max_depth=1, when_full="drop-oldest")
    assert refused(answer, 409) == "channel t/c would drop the oldest 2 of 3 messages; apply=true does it"
    assert names(node) == []

    assert put(node, "a", query="&apply=true", max_depth=1, when_full="drop-oldest")[0] == 200
    assert names(node) == ["a"]


def test_file_counts_and_is_not_changed_over_http(cluster, file):
    node = cluster.nsqd(f"--policies-file={file}")

    assert in_force(node, "orders") == ("orders", {"max_depth": 100})
    assert [policy["from"] for policy in node.get("/policies")["policies"]] == ["file"]
    assert "is changed there" in refused(put(node, "orders", max_depth=5), 409)
    assert "is changed there" in refused(node.request("DELETE", "/policies?name=orders"), 409)
    assert put(node, "own", "^own$", max_depth=5)[0] == 200
    assert names(node) == ["orders", "own"]
    # The node's own answer, sent back, changes nothing.
    assert node.request("PUT", "/policies", node.request("GET", "/policies")[1])[0] == 200


def test_hanging_up_reads_file_again(cluster, file):
    node = cluster.nsqd(f"--policies-file={file}")
    put(node, "own", "^own$", max_depth=5)

    file.write_text(FILE.replace("100", "200"))
    node.process.send_signal(signal.SIGHUP)

    wait_until(lambda: in_force(node, "orders") == ("orders", {"max_depth": 200}), "the file is read again")
    assert names(node) == ["orders", "own"]


@pytest.mark.executed
def test_sighup_during_start_does_not_end_nsqd_and_file_is_read_again(cluster, file):
    node = cluster.nsqd(f"--policies-file={file}")
    node.stop()
    node.spawn()
    wait_until(lambda: ignores_or_handles(node.pid, signal.SIGHUP), "SIGHUP does not end it")
    newer = file.with_suffix(".newer")
    for depth in range(200, 220):
        newer.write_text(FILE.replace("100", str(depth)))
        newer.replace(file)
        node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: listens(node.http_port), "it serves")

    wait_until(lambda: in_force(node, "orders") == ("orders", {"max_depth": 219}), "the file is read")
    assert node.stop() == 0


def test_file_that_cannot_be_used_changes_nothing_while_it_runs(cluster, file):
    node = cluster.nsqd(f"--policies-file={file}")

    file.write_text(FILE.replace("max_depth", "max_dept"))
    node.process.send_signal(signal.SIGHUP)

    wait_until(lambda: "the policies stay as they were" in node.logs(), "the refusal is in the log")
    assert in_force(node, "orders") == ("orders", {"max_depth": 100})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (FILE.replace("max_depth", "max_dept"), "policy orders: there is no setting 'max_dept'"),
        (None, "no such file or directory"),
    ],
)
def test_node_does_not_start_with_file_that_cannot_be_used(cluster, file, text, sentence):
    file.unlink()
    if text is not None:
        file.write_text(text)
    node = cluster.daemon("nsqd", [f"--policies-file={file}"]).spawn()

    assert node.wait() == 1
    assert f"failed to read policies file {file}" in node.logs()
    assert sentence in node.logs()


def test_node_does_not_start_without_policies_that_were_set(node):
    put(node, "a", max_depth=5)
    node.stop()
    (node.folder / "policies.json").write_bytes(b"{}")

    node.spawn()

    assert node.wait() == 1
    assert "failed to read policies from" in node.logs()
