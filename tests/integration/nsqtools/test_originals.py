"""The same command lines for our tools and the original's, side by side; the results are the same."""

import gzip
import re
from pathlib import Path

import pytest

from tests.support.http_sink import HttpSink
from tests.support.tools import GO_TOOLS, Tool, original, publish, read_all, run_tool, unfinished
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(
    original("nsq_tail") is None, reason=f"the original's tools are neither in ${GO_TOOLS} nor on PATH"
)

BODIES = [b"one", b"\x00\xff binary", b"two\nlines", "größer".encode()]


def both(tool: str) -> tuple[list[str] | str, ...]:
    """The programs to start: ours, then the original."""
    peer = original(tool)
    assert peer
    return tool, [peer]


def publish_to_both(nsqd, bodies) -> None:
    """Publish to topic t, so that our tool's channel (c0) and the original's (c1) have the same messages."""
    nsqd.post("/topic/create?topic=t")
    for channel in ("c0", "c1"):
        nsqd.post(f"/channel/create?topic=t&channel={channel}")
    publish(nsqd, "t", bodies)


def until_done(nsqd, tmp_path, number: int, tool, *flags: str) -> int:
    """Run a tool on topic t until its channel is empty, and stop it."""
    source = "-topic=t", f"-channel=c{number}", f"-nsqd-tcp-address={nsqd.tcp_address}"
    with Tool(tmp_path / str(number), tool, *source, *flags) as running:
        wait_until(lambda: unfinished(nsqd, "t", f"c{number}") == 0, f"{tool} has handled all", 20)
        return running.stop()


def test_nsq_tail_prints_the_same(nsqd):
    outcomes = []
    publish_to_both(nsqd, BODIES)
    for number, tool in enumerate(both("nsq_tail")):
        address = f"-nsqd-tcp-address={nsqd.tcp_address}"
        for flags in (["-n=2"], ["-n=2", "-print-topic", "-max-in-flight=1"]):
            ended = run_tool(tool, "-topic=t", f"-channel=c{number}", address, *flags)
            outcomes.append((number, ended.returncode, ended.stdout))

    ours = [outcome[1:] for outcome in outcomes if outcome[0] == 0]
    theirs = [outcome[1:] for outcome in outcomes if outcome[0] == 1]
    assert ours[0] == theirs[0]
    # The original does not finish the last message that it prints, so its second call may start with any.
    assert ours[1][0] == theirs[1][0] == 0
    assert ours[1][1].count(b"t | ") == theirs[1][1].count(b"t | ") == 2


@pytest.mark.parametrize(
    ("flags", "stdin"),
    [
        ([], b"a\nb\n\nc\n"),
        (["-delimiter=,"], b"a,b,c\n,"),
        (["-rate=50"], b"a\nb\n"),
        (["-producer-opt=snappy"], b"a\n"),
    ],
)
def test_records_of_to_nsq_are_those_of_original(nsqd, flags, stdin):
    outcomes = []
    for number, tool in enumerate(both("to_nsq")):
        topic = f"t{number}"
        publish(nsqd, topic, [b"first"], "c")
        read_all(nsqd, topic, "c")
        ended = run_tool(
            tool, f"-topic={topic}", f"-nsqd-tcp-address={nsqd.tcp_address}", *flags, stdin=stdin
        )
        left = read_all(nsqd, topic, "c") if unfinished(nsqd, topic, "c") else []
        outcomes.append((ended.returncode, ended.stdout, left))

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["-gzip"],
        ["-rotate-size=20"],
        ["-filename-format=<TOPIC>/x.<HOST><REV>.<DATETIME>.log", "-datetime-format=%A-%y%m%d-%q"],
        ["-host-identifier=X-<SHORT_HOST>", "-gzip", "-gzip-level=1"],
        ["-work-dir"],
        ["-work-dir", "-gzip", "-rotate-size=10"],
    ],
    ids=" ".join,
)
def test_nsq_to_file_writes_the_same_files(nsqd, tmp_path, flags):
    found = []
    publish_to_both(nsqd, BODIES)
    for number, tool in enumerate(both("nsq_to_file")):
        out, work = tmp_path / f"out{number}", tmp_path / f"work{number}"
        given = [f"-work-dir={work}" if flag == "-work-dir" else flag for flag in flags]
        code = until_done(
            nsqd,
            tmp_path,
            number,
            tool,
            f"-output-dir={out}",
            "-sync-interval=200ms",
            "-datetime-format=%Y-%m-%d",
            *given,
        )
        left = [path for path in work.rglob("*") if path.is_file()] if work.exists() else []
        found.append((code, files(out), left))

    assert found[0] == found[1]


def files(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            found[str(path.relative_to(folder))] = gzip.decompress(data) if path.suffix == ".gz" else data
    # A tick of the interval before the next message makes an empty file, which is a matter of chance.
    return {name: data for name, data in found.items() if data}


@pytest.mark.parametrize(
    "flags",
    [
        ["-post={url}/a?b=c"],
        ["-post={url}/a", "-content-type=text/plain", "-header=X-One: two: three"],
        ["-post={url}/a", "-header=User-Agent:me"],
        ["-get={url}/a?m=%s"],
        ["-get={url}/%s", "-header=X-One:two"],
    ],
    ids=" ".join,
)
def test_nsq_to_http_sends_the_same_requests(nsqd, tmp_path, flags):
    requests = []
    publish_to_both(nsqd, [*BODIES, b"a b&c=d/e?f%g+h~i"])
    for number, tool in enumerate(both("nsq_to_http")):
        with HttpSink() as sink:
            given = [flag.replace("{url}", sink.url) for flag in flags]
            code = until_done(
                nsqd,
                tmp_path,
                number,
                tool,
                *given,
            )
            requests.append((code, sorted(map(as_sent, sink.received))))

    assert requests[0] == requests[1]


def as_sent(request) -> tuple:
    headers = {name.lower(): value for name, value in request.headers.items() if name.lower() != "host"}
    return request.method, request.target, request.body, sorted(headers.items())


JSON_BODIES = [
    b'{"a":1,"b":"x","c":2.5,"d":[1]}',
    b'{"b": "1", "a": {"z": 1.0, "y": [true, null, "<&>"]}}',
    b'{"a":"1"}',
    b'{"a":1.0,"n":1e3,"m":-0.000001,"l":1e21,"k":1e-7}',
    b'{"a":true}',
    b"{}",
    b"notjson",
    b"[1]",
    b'"a"',
    '{"a":"größer\u2028"}'.encode(),
]


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["-require-json-field=a"],
        ["-require-json-field=a", "-whitelist-json-field=a"],
        [f"-whitelist-json-field={name}" for name in "abcklmn"],
        ["-mode=round-robin"],
        ["-producer-opt=deflate", "-consumer-opt=snappy"],
        ["-require-json-field=a", "-require-json-value=1"],
    ],
    ids=" ".join,
)
def test_nsq_to_nsq_copies_the_same(cluster, nsqd, tmp_path, flags):
    destination = cluster.nsqd()
    copies = []
    # The original requeues bodies without the field that must have a value until it gives them up.
    wants_value = "-require-json-value=1" in flags
    publish_to_both(nsqd, [body for body in JSON_BODIES if b'"a"' in body or not wants_value])
    for number, tool in enumerate(both("nsq_to_nsq")):
        publish(destination, f"d{number}", [b"first"], "c")
        read_all(destination, f"d{number}", "c")
        code = until_done(
            nsqd,
            tmp_path,
            number,
            tool,
            f"-destination-topic=d{number}",
            f"-destination-nsqd-tcp-address={destination.tcp_address}",
            *flags,
        )
        copies.append((code, sorted(read_all(destination, f"d{number}", "c"))))

    assert copies[0] == copies[1]
    assert len(copies[0][1]) == 3 or not wants_value


def test_lines_of_status_read_the_same(nsqd, tmp_path):
    shapes = []
    publish_to_both(nsqd, [b"x"] * 45)
    for number, tool in enumerate(both("nsq_to_http")):
        with HttpSink() as sink:
            until_done(nsqd, tmp_path, number, tool, f"-post={sink.url}", "-status-every=10")
        said = (tmp_path / str(number) / "0.err").read_text()
        lines = [line for line in said.splitlines() if "finished 10 " in line]
        shapes.append([re.sub(r"\d+", "0", line) for line in lines])

    assert shapes[0] == shapes[1]
    assert len(shapes[0]) == 4
