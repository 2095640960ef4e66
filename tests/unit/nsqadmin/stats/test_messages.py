import base64
import json

import msgspec
import pytest

from nsqadmin.stats.messages import FoundMessage, hex_lines
from nsqcore.cluster.listed_messages import ListedMessage


def message(body, encoding="text", **given):
    raw = msgspec.Raw(body if encoding == "json" else json.dumps(body).encode())
    listed = ListedMessage("0123456789abcdef", 7, 1, "", len(body), encoding, raw, **given)
    return FoundMessage("a:4151", listed)


def test_body_is_what_was_published_however_it_is_written():
    assert message("héllo").content == "héllo".encode()
    assert message(base64.b64encode(b"\xff\x00").decode(), "base64").content == b"\xff\x00"
    assert message(b'{"a":1}', "json").content == b'{"a":1}'


def test_numbers_of_json_stay_as_they_were_written():
    tree = message(b'{"price":1.10,"id":12345678901234567890,"on":true}', "json").tree

    assert tree == {"price": "1.10", "id": "12345678901234567890", "on": True}


@pytest.mark.parametrize("body", ["", "{", "[" * 100_000, '{"a":', "no"])
def test_non_json_body_has_no_tree(body):
    assert message(body).tree is None


def test_bytes_that_are_no_text_have_none():
    binary = message(base64.b64encode(bytes(range(250, 256)) * 20).decode(), "base64")

    assert binary.text is None
    assert binary.tree is None
    assert binary.preview.startswith("fa fb fc")
    assert binary.preview.endswith("…")


@pytest.mark.parametrize("value", [{"user": [1, 2.5, None, True]}, [{"a": b"\xff"}]])
def test_body_in_messagepack_has_tree(value):
    packed = message(base64.b64encode(msgspec.msgpack.encode(value)).decode(), "base64")

    assert packed.text is None
    assert (packed.tree, packed.format) == (value, "MessagePack")


@pytest.mark.parametrize(
    "body", [b"\x80\xff", b"\xff", b"\xc4\x02\xff\xfe", b"\xdd\xff\xff\xff\xff", b"\x91" * 100_000]
)
def test_bytes_that_are_no_messagepack_object_have_no_tree(body):
    assert message(base64.b64encode(body).decode(), "base64").tree is None


def test_preview_is_one_short_line():
    assert message("a\n  b\tc").preview == "a b c"
    assert len(message("x" * 5000).preview) == 161


def test_message_without_read_right_has_no_body_and_headers():
    said = message("secret", headers={"tenant": "blue"}, state="waiting")
    hidden = FoundMessage(said.node, said.listed, readable=False)

    assert hidden.content == b""
    assert hidden.preview == ""
    assert hidden.headers == {}
    assert hidden.trace("https://t/{tenant}") == ""
    assert hidden.to_json().keys() & {"body", "headers", "encoding"} == set()
    assert bytes(said.to_json()["body"]) == b'"secret"'


def test_body_of_json_is_passed_on_as_it_was_written():
    told = message(b'{"x":1e999,"price":1.10}', "json").to_json()

    assert msgspec.json.encode(told["body"]) == b'{"x":1e999,"price":1.10}'


def test_trace_of_message_is_where_its_headers_say():
    traced = message("", headers={"traceparent": "00-abc-def-01", "tenant": "a/b"})

    assert traced.trace("https://t/{trace_id}/{span_id}?of={tenant}") == "https://t/abc/def?of=a%2Fb"
    assert traced.trace("https://t/{unknown}") == ""
    assert message("", headers={"traceparent": "abc"}).trace("https://t/{trace_id}") == ""


def test_holder_of_message_is_named():
    assert message("", client={"client_id": "app", "address": "1:2"}).holder == "app at 1:2"
    assert message("", client={"address": "1:2"}).holder == "1:2"
    assert message("").holder == ""


def test_dead_letter_says_where_it_came_from():
    assert message("", headers={"dead-topic": "t", "dead-channel": "c"}).origin == ("t", "c")
    assert message("", headers={"dead-topic": "t"}).origin is None


def test_bytes_are_written_sixteen_line():
    first, second = hex_lines(b"abcdefghijklmnop\x00\xff")

    assert first == "00000000  61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f 70  abcdefghijklmnop"
    assert second.split() == ["00000010", "00", "ff", ".."]
