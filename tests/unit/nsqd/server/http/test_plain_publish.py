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


def test_beginning_of_plain_head_may_become_plain():
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
