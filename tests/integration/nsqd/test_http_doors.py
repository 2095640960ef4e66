"""The front and aiohttp alone: the same bytes get the same answers and leave the connection alike."""

import pytest

from tests.support.http_doors import Doors, outcome, parse
from tests.support.memory_transport import MemoryTransport, quiet

START = b"POST /pub?topic=t HTTP/1.1\r\n"
HEAD = START + b"Host: x\r\n"
REST = b"Content-Length: 1\r\n\r\nx"
PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"

FORBIDDEN = {
    "bare LF": (HEAD + REST).replace(b"\r\n", b"\n"),
    "bare LF in one line": HEAD + b"A: b\n" + REST,
    "bare CR in a value": HEAD + b"A: b\rc\r\n" + REST,
    "bare CR at the end of a line": HEAD + b"A: b\r" + REST,
    "two CR": HEAD + b"A: b\r\r\n" + REST,
    "NUL in a value": HEAD + b"A: b\0c\r\n" + REST,
    "NUL in a name": HEAD + b"A\0: b\r\n" + REST,
    "a control character": HEAD + b"A: b\x01c\r\n" + REST,
    "a folded line": HEAD + b"A: b\r\n c\r\n" + REST,
    "a folded length": HEAD + b"Content-Length:\r\n 1\r\n\r\nx",
    "a folded first line": START + b" Host: x\r\n" + REST,
    "no host": START + REST,
    "two hosts": HEAD + b"Host: y\r\n" + REST,
    "twice the same host": HEAD + b"Host: x\r\n" + REST,
    "a host that is none": START + b"Host: a b/c\r\n" + REST,
    "a list of hosts": START + b"Host: a, b\r\n" + REST,
    "a space before the colon of the length": HEAD + b"Content-Length : 1\r\n\r\nx",
    "a space before a colon": HEAD + b"A : b\r\n" + REST,
    "no colon": HEAD + b"Abc\r\n" + REST,
    "no name": HEAD + b": b\r\n" + REST,
    "an impossible name": HEAD + b"A(b): c\r\n" + REST,
    "a signed length": HEAD + b"Content-Length: +1\r\n\r\nx",
    "a length below zero": HEAD + b"Content-Length: -1\r\n\r\nx",
    "a length with a stroke": HEAD + b"Content-Length: 1_0\r\n\r\nx",
    "a hexadecimal length": HEAD + b"Content-Length: 0x1\r\n\r\nx",
    "a list of lengths": HEAD + b"Content-Length: 1, 1\r\n\r\nx",
    "an empty length": HEAD + b"Content-Length: \r\n\r\nx",
    "an immense length": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\nx",
    "two lengths": HEAD + b"Content-Length: 5\r\n" + REST,
    "twice the same length": HEAD + b"Content-Length: 1\r\n" + REST,
    "a length behind a bare CR": HEAD + b"A: b\rContent-Length: 5\r\n" + REST,
    "a length behind a bare LF": HEAD + b"A: b\nContent-Length: 5\r\n" + REST,
    "a length and chunks": HEAD + b"Transfer-Encoding: chunked\r\n" + REST,
    "an unknown coding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    "chunks twice": HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    "HTTP/1.2": START.replace(b"1.1", b"1.2") + b"Host: x\r\n" + REST,
    "a method in small letters": (HEAD + REST).replace(b"POST", b"post"),
    "a space after the version": START.replace(b"\r\n", b" \r\n") + b"Host: x\r\n" + REST,
    "two content types": HEAD + b"Content-Type: a/b\r\nContent-Type: a/b\r\n" + REST,
    "200 headers": HEAD + b"A: b\r\n" * 200 + REST,
    "the beginning of a line that is wrong": HEAD + b"A b: c",
}

ALLOWED = {
    "plain": HEAD + REST,
    "in small letters": HEAD + REST.lower(),
    "no value": START + b"Host:\r\n" + REST,
    "bytes beyond ASCII": HEAD + b"A: \xff\r\n" + REST,
    "zeros before the length": HEAD + b"Content-Length: 000000001\r\n\r\nx",
    "tabs around the length": HEAD + b"Content-Length:\t1\t\r\n\r\nx",
    "chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    "the connection kept": HEAD + b"Connection: keep-alive\r\n" + REST,
    "the connection closed": HEAD + b"Connection: close\r\n" + REST,
    "HTTP/1.0": b"POST /pub?topic=t HTTP/1.0\r\n" + REST,
    "an empty line before": b"\r\n" + HEAD + REST,
    "an upgrade to nothing known": HEAD + b"Connection: upgrade\r\nUpgrade: h2c\r\n" + REST,
    "twice the same unimportant header": HEAD + b"Accept: a\r\nAccept: a\r\n" + REST,
    "many headers": HEAD + b"".join(b"X-%d: y\r\n" % n for n in range(100)) + REST,
    "a whole URL": b"POST http://x/pub?topic=t HTTP/1.1\r\nHost: x\r\n" + REST,
    "a long header": HEAD + b"X: " + b"y" * 9000 + b"\r\n" + REST,
    "another parameter": b"POST /pub?defer=0&topic=t HTTP/1.1\r\nHost: x\r\n" + REST,
}

NO_PUBLISH = {
    "no body": (HEAD + b"Content-Length: 0\r\n\r\n", 400),
    "a large body": (HEAD + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001, 413),
    "a bad topic": ((HEAD + REST).replace(b"=t", b"=t$"), 400),
    "a long topic": ((HEAD + REST).replace(b"=t", b"=" + b"t" * 65), 400),
    "a bad delay": ((HEAD + REST).replace(b"=t", b"=t&defer=-1"), 400),
    "no topic": ((HEAD + REST).replace(b"topic", b"channel"), 400),
    "another path": ((HEAD + REST).replace(b"pub", b"nowhere"), 404),
    "another method": (PING.replace(b"ping", b"pub?topic=t"), 405),
}


@pytest.fixture
async def doors(tmp_path):
    async with Doors(tmp_path / "data", max_msg_size=1000) as doors:
        yield doors


@pytest.mark.parametrize("sent", FORBIDDEN.values(), ids=FORBIDDEN)
async def test_forbidden_http_is_refused_at_both_doors(doors, sent):
    for door in (doors.alone, doors.front):
        found = await outcome(door, sent, PING)

        assert (found.statuses, found.kept) == ([400], False)
    assert doors.published().get("t", 0) == 0


@pytest.mark.parametrize("sent", ALLOWED.values(), ids=ALLOWED)
@pytest.mark.parametrize("before", [b"", HEAD + REST])
async def test_allowed_http_is_published_at_both_doors(doors, sent, before):
    alone = await outcome(doors.alone, before + sent, PING)
    front = await outcome(doors.front, before + sent, PING)

    assert front == alone
    assert alone.statuses[0] == 200
    assert doors.published()["t"] == 2 * (1 + bool(before))


@pytest.mark.parametrize(("sent", "status"), NO_PUBLISH.values(), ids=NO_PUBLISH)
async def test_refused_publish_has_the_same_answer_at_both_doors(doors, sent, status):
    alone = await outcome(doors.alone, HEAD + REST, sent)
    front = await outcome(doors.front, HEAD + REST, sent)

    assert front == alone
    assert alone.statuses == [200, status]


@pytest.mark.parametrize("version", [b"HTTP/2.0", b"HTTP/0.9"])
async def test_unknown_http_versions_are_refused_at_both_doors(doors, version):
    for door in (doors.alone, doors.front):
        found = await outcome(door, START.replace(b"HTTP/1.1", version) + b"Host: x\r\n" + REST, PING)

        assert (found.statuses, found.kept) == ([505], False)


FOREIGN = [b"Sec-Fetch-Site: cross-site\r\n", b"Sec-Fetch-Site: same-site\r\n", b"Origin: http://evil\r\n"]
OWN = [b"Sec-Fetch-Site: same-origin\r\n", b"Sec-Fetch-Site: none\r\n", b"Origin: http://x\r\n", b""]


@pytest.mark.parametrize("header", FOREIGN)
async def test_page_of_another_site_changes_nothing(doors, header):
    for door in (doors.alone, doors.front):
        for target in (b"/pub?topic=t", b"/mpub?topic=t", b"/topic/create?topic=t"):
            sent = (HEAD + header + REST).replace(b"/pub?topic=t", target)
            found = await outcome(door, sent, PING.replace(b"Host: x\r\n", b"Host: x\r\n" + header))

            assert found.answers[0] == (403, b'{"message":"FORBIDDEN"}')
            assert found.answers[-1] == (200, b"OK")
    assert doors.published() == {}


@pytest.mark.parametrize("header", OWN)
async def test_programs_and_pages_of_its_own_may_publish(doors, header):
    for door in (doors.alone, doors.front):
        assert (await outcome(door, HEAD + header + REST)).statuses == [200]


async def test_request_may_be_cut_anywhere(doors):
    whole = HEAD + b"User-Agent: u\r\n" + REST
    client = MemoryTransport()
    client.connect(doors.front())
    for cut in range(1, len(whole)):
        client.say(whole[:cut])
        client.say(whole[cut:])
        await quiet(client)

    assert parse(client.received, kept=True).statuses == [200] * (len(whole) - 1)
    # The connection still belongs to the front.
    assert client.get_protocol() in doors.nsqd.fast_publish.connections


async def test_requests_that_come_together_are_answered_in_their_order(doors):
    def publish(topic):
        return HEAD.replace(b"topic=t", b"topic=" + topic) + REST

    found = await outcome(doors.front, publish(b"a") + publish(b"b") + publish(b"a") + PING + publish(b"c"))

    assert found.statuses == [200] * 5
    assert doors.published() == {"a": 2, "b": 1, "c": 1}


async def test_half_closed_client_is_answered_at_both_doors(doors):
    sent = HEAD.replace(b"topic=t", b"topic=u") + REST + PING
    for door in (doors.alone, doors.front):
        client, connection = MemoryTransport(), door()
        client.connect(connection)
        client.say(sent)

        # At the front the publish is not stored yet, so aiohttp has not seen the request after it.
        assert client.get_protocol().eof_received()
        await quiet(client)
        assert parse(client.received, kept=True).statuses == [200] * 2
        assert client.is_closing()
