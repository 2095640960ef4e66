"""Which request heads are plain publishes."""

import pytest

from nsqd.server.http.plain_publish import PlainPublish, may_become_plain, understand

START = b"POST /pub?topic=orders HTTP/1.1\r\n"
HOST = b"Host: x:4151\r\n"
LENGTH = b"Content-Length: 12\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        HOST + LENGTH,
        LENGTH + HOST,
        b"host: x\r\ncontent-length:12\r\n",
        b"Host:\r\nContent-Length:\t 12 \t\r\n",
        HOST + LENGTH + b"Connection: Keep-Alive\r\nUser-Agent: curl/8 (x; y)\r\nAccept: */*\r\n",
        b"Host: [::1]:4151\r\n" + LENGTH,
    ],
)
def test_plain_publish_is_understood(headers):
    assert understand(START + headers + b"\r\n") == PlainPublish("orders", 12)
    many = START.replace(b"/pub", b"/mpub")
    assert understand(many + headers + b"\r\n") == PlainPublish("orders", 12, lines=True)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /pub?topic=orders HTTP/1.1\r\n" + HOST + LENGTH,
        b"POST /pub?topic=orders HTTP/1.0\r\n" + HOST + LENGTH,
        b"POST /pub?topic=orders&defer=1 HTTP/1.1\r\n" + HOST + LENGTH,
        b"POST /pub?topic=%6f HTTP/1.1\r\n" + HOST + LENGTH,
        b"POST /mpub?topic=orders&binary=true HTTP/1.1\r\n" + HOST + LENGTH,
        b"POST /mmpub?topic=orders HTTP/1.1\r\n" + HOST + LENGTH,
        START + LENGTH,
        START + HOST,
        START + HOST + HOST + LENGTH,
        START + HOST + LENGTH + LENGTH,
        START + HOST + LENGTH + b"Accept: a\r\nAccept: b\r\n",
        START + HOST + b"Content-Length: +12\r\n",
        START + HOST + b"Content-Length: 1 2\r\n",
        START + HOST + b"Content-Length: \r\n",
        START + HOST + b"Content-Length : 12\r\n",
        START + b"Host: x\r\n Content-Length: 12\r\n",
        START + b"Host: x/y\r\n" + LENGTH,
        START + HOST + LENGTH + b"Connection: close\r\n",
        START + HOST + LENGTH + b"Transfer-Encoding: chunked\r\n",
        START + HOST + LENGTH + b"Expect: 100-continue\r\n",
        START + HOST + LENGTH + b"Origin: http://elsewhere\r\n",
        START + HOST + LENGTH + b"A: b\0\r\n",
        START + HOST + LENGTH + b"A: b\rc\r\n",
        START + HOST + LENGTH + b"A: b\nc: d\r\n",
        START + HOST + LENGTH + b"A: b\r\n folded\r\n",
        START + HOST + LENGTH + b"A: \xff\r\n",
        START + HOST + LENGTH + b"no colon\r\n",
        START + HOST + LENGTH + b": no name\r\n",
        START + HOST + LENGTH + b"".join(b"X-%d: y\r\n" % n for n in range(70)),
        START.replace(b"\r\n", b"\n") + HOST + LENGTH,
    ],
)
def test_anything_else_is_not(head):
    assert understand(head + b"\r\n") is None


def test_every_beginning_of_plain_head_may_become_one():
    head = START + HOST + LENGTH + b"\r\n"

    assert [end for end in range(len(head)) if not may_become_plain(head[:end])] == []


@pytest.mark.parametrize(
    "begun",
    [
        b"GET",
        b"POST /pub?topic=a$",
        b"POST /pub?topic=a HTTP/1.0",
        START + b" Host",
        START + b"Host: x\n",
        START + b"Host: x\rA",
        START + b"Ho st",
        START + b"Host : x",
        START + b"Host: x\0",
    ],
)
def test_beginning_that_is_wrong_already_is_not_waited_for(begun):
    assert not may_become_plain(begun)
