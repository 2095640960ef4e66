"""nsq_peek against real daemons."""

import json
import signal

import pytest

from tests.support.auth_server import AuthServer, granted
from tests.support.nsqd_http import channel_stats
from tests.support.tools import Tool, ends_though_nobody_reads, publish, run_tool
from tests.support.waiting import wait_until


def flags(nsqd, *more: str) -> list[str]:
    return ["-topic=t", f"-nsqd-http-address={nsqd.http_address}", *more]


def bodies(nsqd, *more: str) -> list[bytes]:
    ended = run_tool("nsq_peek", *flags(nsqd, "-output=body", *more))
    assert (ended.returncode, ended.stderr) == (0, b"")
    return ended.stdout.splitlines()


def test_messages_are_shown_and_not_consumed(nsqd):
    publish(nsqd, "t", [b"%d" % number for number in range(2500)], channel="c")

    assert bodies(nsqd) == [b"%d" % number for number in range(2500)]
    assert channel_stats(nsqd, "t", "c")["depth"] == 2500


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (["-n=2"], [b'{"a":1}', b'{"a":2}']),
        (["-reverse", "-n=2"], [b"other", b'{"a":3}']),
        (["-contains=oth"], [b"other"]),
        (["-json-field=a=2"], [b'{"a":2}']),
        (["-json-field=a", "-reverse"], [b'{"a":3}', b'{"a":2}', b'{"a":1}']),
        (["-from=-10m", "-n=1"], [b'{"a":1}']),
        (["-from=latest"], []),
        (["-from=2999-01-01"], []),
    ],
)
def test_requested_messages_are_shown(nsqd, asked, shown):
    publish(nsqd, "t", [b'{"a":1}', b'{"a":2}', b'{"a":3}', b"other"])

    assert bodies(nsqd, *asked) == shown


def test_peek_begins_at_id_or_sequence(nsqd):
    publish(nsqd, "t", [b"one", b"two"])
    second = nsqd.get("/messages?topic=t")["messages"][1]

    assert bodies(nsqd, f"-from=id:{second['id']}") == bodies(nsqd, f"-from={second['sequence']}") == [b"two"]


def test_state_on_channel_is_shown_and_asked_for(nsqd):
    publish(nsqd, "t", [b"now"], channel="c")
    nsqd.post("/pub?topic=t&defer=3000000", b"late")
    nsqd.post("/pub?topic=t&defer=2000000", b"later")

    ended = run_tool("nsq_peek", *flags(nsqd, "-channel=c", "-n=1"))

    assert ended.stdout.split()[2:] == [b"waiting", b"now"]
    assert bodies(nsqd, "-channel=c", "-state=deferred") == [b"later", b"late"]


def test_headers_are_shown(nsqd):
    nsqd.post("/topic/create?topic=t")
    nsqd.post("/pub_ext?topic=t&ext=%7B%22k%22%3A%22v%22%7D", b"one")

    assert bodies(nsqd, "-headers") == [b'{"k": "v"} one']


def test_several_nsqd_are_shown_in_order_of_publishing(cluster, nsqd):
    other = cluster.nsqd()
    for number in range(6):
        (nsqd, other)[number % 2].post("/pub?topic=t", b"%d" % number)
    both = f"-nsqd-http-address={other.http_address}"

    ended = run_tool("nsq_peek", *flags(nsqd, both, "-output=json"))

    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(line["nsqd"], line["body"]) for line in lines] == [
        ((nsqd, other)[number % 2].http_address, str(number)) for number in range(6)
    ]
    assert bodies(nsqd, both, "-reverse", "-n=3") == [b"5", b"4", b"3"]


def test_nsqd_are_found_by_way_of_nsqlookupd(cluster):
    lookupd = cluster.nsqlookupd()
    nsqd = cluster.nsqd()
    nsqd.post("/pub?topic=t", b"one")
    wait_until(lambda: lookupd.get("/topics")["topics"] == ["t"], "the topic is registered")
    asked = [f"-lookupd-http-address={lookupd.http_address}", "-output=body"]

    found = run_tool("nsq_peek", "-topic=t", *asked)
    unknown = run_tool("nsq_peek", "-topic=nope", *asked)

    assert (found.returncode, found.stdout) == (0, b"one\n")
    assert unknown.returncode == 1
    assert b"ERROR: no nsqlookupd knows an nsqd with topic nope\n" in unknown.stderr


def test_topic_on_one_of_two_nsqd_is_no_failure(cluster, nsqd):
    publish(nsqd, "t", [b"one"])

    assert bodies(nsqd, f"-nsqd-http-address={cluster.nsqd().http_address}") == [b"one"]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (["-topic=nope"], b"ERROR: no nsqd has topic nope\n"),
        (["-channel=nope"], b"ERROR: no nsqd has channel nope of topic t\n"),
        (["-topic=nope", "-channel=c"], b"ERROR: no nsqd has topic nope\n"),
        (["-from=yesterday"], b"INVALID_ARG_FROM: "),
        (["-json-field=="], b"INVALID_ARG_JSON: "),
        (["-auth-secret-file=/nowhere"], b"ERROR: --auth-secret-file: cannot read the AUTH secret"),
        (["-http-client-tls-cert=x"], b"ERROR: --http-client-tls-cert"),
    ],
)
def test_impossible_request_ends_with_sentence(nsqd, asked, sentence):
    publish(nsqd, "t", [b"one"])

    ended = run_tool("nsq_peek", *flags(nsqd, *asked))

    assert (ended.returncode, ended.stdout) == (1, b"")
    assert sentence in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_nsqd_that_does_not_answer_is_named_and_the_other_shown(cluster, nsqd):
    publish(nsqd, "t", [b"one"])
    gone = cluster.nsqd()
    gone.kill()

    ended = run_tool("nsq_peek", *flags(nsqd, "-output=body", f"-nsqd-http-address={gone.http_address}"))

    assert (ended.returncode, ended.stdout) == (1, b"one\n")
    assert f"WARNING: {gone.http_address}: ".encode() in ended.stderr
    assert b"ERROR: these are not all messages: not every nsqd has answered\n" in ended.stderr


def test_secret_is_shown_to_nsqd(cluster, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("mine\n")
    shown = [f"-auth-secret-file={secret}"]
    with AuthServer(by_secret={"mine": granted()}) as server:
        nsqd = cluster.nsqd(f"--auth-http-address={server.address}", "--http-auth")

        without = run_tool("nsq_peek", *flags(nsqd))
        with_it = run_tool("nsq_peek", *flags(nsqd, *shown))

    assert (without.returncode, with_it.returncode) == (1, 1)
    assert f"WARNING: {nsqd.http_address}: ".encode() in without.stderr
    # nsqd accepted the secret, because the tool learns that the topic does not exist.
    assert with_it.stderr.endswith(b"ERROR: no nsqd has topic t\n")


def test_peek_follows_publishes_over_restart(nsqd, tmp_path):
    publish(nsqd, "t", [b"one"])
    asked = flags(nsqd, "-output=body", "-follow", "-from=earliest", "-interval=20ms")
    with Tool(tmp_path, "nsq_peek", *asked) as tool:
        wait_until(lambda: tool.printed() == b"one\n", "what is there is shown")
        nsqd.post("/pub?topic=t", b"two")
        wait_until(lambda: tool.printed() == b"one\ntwo\n", "what comes is shown")
        nsqd.stop()
        tool.until_said(f"WARNING: {nsqd.http_address}: ")
        nsqd.start()
        nsqd.post("/pub?topic=t", b"three")
        wait_until(lambda: tool.printed() == b"one\ntwo\nthree\n", "it continues where it was")
        tool.until_said(f"{nsqd.http_address} answers again")

        assert tool.stop(signal.SIGINT) == 0


def test_following_begins_at_the_end_and_ends_after_n(nsqd, tmp_path):
    publish(nsqd, "t", [b"old"])
    with Tool(
        tmp_path, "nsq_peek", *flags(nsqd, "-output=body", "-follow", "-interval=20ms", "-n=1")
    ) as tool:

        def asked() -> bool:
            nsqd.post("/pub?topic=t", b"new")
            return tool.process.poll() is not None

        wait_until(asked, "one is shown")

        assert tool.process.wait(20) == 0
        assert tool.printed() == b"new\n"


def test_unread_pipe_does_not_prevent_exit(nsqd):
    publish(nsqd, "t", [b"x" * 100] * 1000)

    assert ends_though_nobody_reads("nsq_peek", *flags(nsqd)) == 0
