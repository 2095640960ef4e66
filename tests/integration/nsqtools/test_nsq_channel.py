"""nsq_channel against real daemons."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from bench.ports import free_port
from nsqtools.nsq_channel.options import ACTIONS
from tests.support.nsqd_http import channel_stats, set_policy
from tests.support.tools import command, publish, read_all, run_tool, unfinished
from tests.support.waiting import wait_until


def run(action: str, nsqd, *more: str) -> subprocess.CompletedProcess[bytes]:
    channel = () if action == "send-back" else ("-channel=c",)
    return run_tool(
        "nsq_channel", action, "-topic=t", *channel, f"-nsqd-http-address={nsqd.http_address}", *more
    )


def done(action: str, nsqd, *more: str) -> str:
    """Run an action on one nsqd; return the report of the tool."""
    ended = run(action, nsqd, *more)
    assert (ended.returncode, ended.stderr) == (0, b"")
    return ended.stdout.decode().removeprefix(f"{nsqd.http_address}: ").removesuffix("\n")


def message_id(nsqd, body: str) -> str:
    found = nsqd.get("/messages?topic=t")["messages"]
    return next(message["id"] for message in found if message["body"] == body)


def test_channel_is_made_paused_emptied_and_deleted(nsqd):
    publish(nsqd, "t", [b"one"])

    assert done("create", nsqd) == "created"
    assert done("pause", nsqd) == "paused"
    assert channel_stats(nsqd, "t", "c")["paused"] is True
    assert done("unpause", nsqd) == "unpaused"
    assert channel_stats(nsqd, "t", "c")["paused"] is False
    assert unfinished(nsqd, "t", "c") == 1
    assert done("empty", nsqd) == "emptied"
    assert unfinished(nsqd, "t", "c") == 0
    assert done("delete", nsqd) == "deleted"
    assert nsqd.get("/stats?format=json&topic=t")["topics"][0]["channels"] == []


@pytest.mark.parametrize("all_answer", [True, False])
def test_failed_nsqd_is_named_without_reader_of_stdout(nsqd, all_answer):
    publish(nsqd, "t", [b"one"], channel="c")
    dead = f"127.0.0.1:{free_port()}"
    addresses = [nsqd.http_address] if all_answer else [nsqd.http_address, dead]
    words = ["pause", "-topic=t", "-channel=c", *(f"-nsqd-http-address={one}" for one in addresses)]
    reader, writer = os.pipe()
    os.close(reader)

    ended = subprocess.run(
        [*command("nsq_channel"), *words], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)

    assert channel_stats(nsqd, "t", "c")["paused"] is True
    if all_answer:
        assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b"")
    else:
        assert ended.returncode == 1
        assert dead.encode() in ended.stderr


def test_full_disk_behind_stdout_is_named_beside_nsqd_that_failed(nsqd):
    publish(nsqd, "t", [b"one"], channel="c")
    dead = f"127.0.0.1:{free_port()}"
    words = [
        "pause",
        "-topic=t",
        "-channel=c",
        *(f"-nsqd-http-address={a}" for a in (nsqd.http_address, dead)),
    ]

    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [*command("nsq_channel"), *words], stdout=full, stderr=subprocess.PIPE, check=False
        )

    assert ended.returncode == 1
    assert dead.encode() in ended.stderr
    assert b"failed to write to stdout - no space left on device" in ended.stderr


def test_channel_is_set_back_and_new_one_begins_at_position(nsqd):
    publish(nsqd, "t", [b"one", b"two", b"three"], channel="keeps")
    nsqd.post("/channel/create?topic=t&channel=c")
    second = message_id(nsqd, "two")

    assert done("seek", nsqd, f"-to={second}").startswith("2 messages pending, from sequence ")
    assert read_all(nsqd, "t", "c") == [b"two", b"three"]
    done("delete", nsqd)
    done("create", nsqd, "-start=earliest")
    assert read_all(nsqd, "t", "c") == [b"one", b"two", b"three"]


def test_policies_are_shown_and_differing_nsqds_named(cluster):
    first, second = cluster.nsqd(), cluster.nsqd()
    set_policy(first, "^t$", max_attempts=3, ttl="1h")

    assert done("policies", first).startswith("policy p: max_attempts=3, ttl=1h; digest of all ")
    ended = run("policies", first, f"-nsqd-http-address={second.http_address}")

    assert ended.returncode == 0
    assert b"no policy is in force" in ended.stdout
    assert b" the nsqd do not have the same policies: " in ended.stderr


def test_messages_are_finished_by_id_by_filter_and_all(nsqd):
    publish(nsqd, "t", [b"one", b'{"a":1}', b'{"a":2}', b"four", b"five"], channel="c")

    assert done("finish", nsqd, "-contains=o", "-dry-run") == "2 messages would be finished"
    assert unfinished(nsqd, "t", "c") == 5
    assert done("finish", nsqd, f"-id={message_id(nsqd, 'four')}") == "1 message finished"
    assert done("finish", nsqd, "-json-field=a=2") == "1 message finished"
    assert done("finish", nsqd, "-all", f"-from=id:{message_id(nsqd, 'five')}") == "1 message finished"
    assert read_all(nsqd, "t", "c") == [b"one", b'{"a":1}']


def test_messages_beyond_one_request_are_all_handled(nsqd):
    publish(nsqd, "t", [b"x"] * 12_000, channel="c")

    assert done("finish", nsqd, "-all", "-dry-run") == "12000 messages would be finished"
    assert done("finish", nsqd, "-all") == "12000 messages finished"
    assert unfinished(nsqd, "t", "c") == 0


def test_messages_are_put_off_sent_and_cancelled(nsqd):
    publish(nsqd, "t", [b"one", b"two", b"three"], channel="c")

    assert done("requeue", nsqd, "-state=waiting", "-defer=30m") == "3 messages requeued"
    assert channel_stats(nsqd, "t", "c")["deferred_count"] == 3
    assert done("cancel", nsqd, "-contains=one") == "1 message cancelled"
    assert done("send", nsqd, "-contains=two") == "1 message sent"
    assert channel_stats(nsqd, "t", "c")["deferred_count"] == 1
    assert done("send", nsqd, "-all") == "1 message sent"
    assert sorted(read_all(nsqd, "t", "c")) == [b"three", b"two"]


def test_dead_letters_return_to_their_channel(nsqd):
    nsqd.create("from", "c")
    nsqd.post("/topic/create?topic=t")
    for number in range(3):
        header = {"dead-topic": "from", "dead-channel": "c" if number < 2 else "gone"}
        nsqd.request("POST", f"/pub_ext?topic=t&ext={json.dumps(header).replace(' ', '')}", b"%d" % number)
    one = message_id(nsqd, "0")

    counted = done("send-back", nsqd, "-all", "-dry-run")
    assert counted.startswith("2 messages would be sent back; 1 message left: ")
    assert unfinished(nsqd, "from", "c") == 0
    assert done("send-back", nsqd, f"-id={one}") == "1 message sent back"
    assert done("send-back", nsqd, "-contains=1") == "1 message sent back"
    assert read_all(nsqd, "from", "c") == [b"0", b"1"]


def test_action_runs_on_all_nsqds_and_id_on_its_own(cluster):
    lookupd = cluster.nsqlookupd()
    nsqds = [cluster.nsqd("--node-id=1"), cluster.nsqd("--node-id=2")]
    for nsqd in nsqds:
        publish(nsqd, "t", [b"one"], channel="c")
    wait_until(lambda: len(lookupd.get("/lookup?topic=t")["producers"]) == 2, "both are registered")
    where = ["-topic=t", "-channel=c", f"-lookupd-http-address={lookupd.http_address}"]

    by_id = run_tool("nsq_channel", "finish", *where, f"-id={message_id(nsqds[1], 'one')}")
    paused = run_tool("nsq_channel", "pause", *where)
    deleted = run_tool("nsq_channel", "delete", *where)

    assert (by_id.returncode, by_id.stdout.count(b"\n"), by_id.stderr) == (0, 1, b"")
    assert by_id.stdout.endswith(f":{nsqds[1].http_port}: 1 message finished\n".encode())
    assert (paused.returncode, paused.stdout.count(b": paused\n")) == (0, 2)
    assert (deleted.returncode, deleted.stdout.count(b": deleted\n")) == (0, 2)
    assert lookupd.get("/channels?topic=t")["channels"] == []


@pytest.mark.parametrize(
    ("action", "asked", "sentence"),
    [
        ("pause", ["-topic=nope"], b"ERROR: no nsqd has topic nope\n"),
        ("pause", ["-channel=nope"], b"ERROR: no nsqd has channel nope of topic t\n"),
        ("seek", ["-to=yesterday"], b": INVALID_ARG_TO: "),
        ("create", ["-start=99999"], b": SEQUENCE_GONE: "),
        ("finish", ["-id=0000000000000000"], b"ERROR: "),
        ("requeue", ["-all", "-defer=9000h"], b": INVALID_ARG_DEFER: "),
    ],
)
def test_impossible_action_ends_with_sentence_and_changes_nothing(nsqd, action, asked, sentence):
    publish(nsqd, "t", [b"one"], channel="c")
    if action == "create":
        asked = ["-channel=new", *asked]

    ended = run(action, nsqd, *asked)

    assert (ended.returncode, ended.stdout) == (1, b"")
    assert sentence in ended.stderr
    assert ended.stderr.count(b"\n") == 1
    assert [one["channel_name"] for one in nsqd.get("/stats?format=json")["topics"][0]["channels"]] == ["c"]
    assert channel_stats(nsqd, "t", "c")["depth"] == 1


def test_nsqd_that_does_not_answer_is_named_and_the_other_does_it(cluster, nsqd):
    publish(nsqd, "t", [b"one"], channel="c")
    gone = cluster.nsqd()
    gone.kill()

    ended = run("pause", nsqd, f"-nsqd-http-address={gone.http_address}")

    assert (ended.returncode, ended.stdout) == (1, f"{nsqd.http_address}: paused\n".encode())
    assert f"ERROR: {gone.http_address}: ".encode() in ended.stderr


def test_help_names_every_action_and_wrong_one_is_refused():
    shown = run_tool("nsq_channel", "-help")
    wrong = run_tool("nsq_channel", "puase", "-topic=t")

    assert shown.returncode == 0
    assert [line.split()[0] for line in shown.stderr.decode().splitlines()[3:-2]] == list(ACTIONS)
    assert wrong.returncode == 2
    assert wrong.stderr == b"puase is no action of nsq_channel; is pause meant?\n"
