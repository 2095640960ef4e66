import json

import msgspec
import pytest

from nsqd.engine.message_status import MessageState, MessageStatus
from nsqd.log.encoder import Batch, Encoder
from nsqd.log.headers import join
from nsqd.log.ids import MessageIds
from nsqd.server.messages.shown import body_of, message_json, state_of, time_text

IDS = MessageIds(5)
NS = 1_700_000_000_000_000_123


def block_of(*bodies):
    return Encoder(IDS, 70).batch(Batch(list(bodies)), NS)


def test_message_is_shown_with_all_that_is_known_of_it():
    message = message_json(block_of(b"a", b"hello"), 71, 1000)

    assert message == {
        "id": IDS.encode(71).decode(),
        "sequence": 71,
        "timestamp": NS,
        "time": "2023-11-14T22:13:20.000000123Z",
        "size": 5,
        "encoding": "text",
        "body": "hello",
    }


def test_headers_are_shown_and_are_no_part_of_body():
    data = Encoder(IDS, 70)
    batch = Batch([join({"trace": "1"}, b"hello"), join({}, b"bye")], has_headers=True)
    block = data.batch(batch, NS)

    first, second = message_json(block, 70, 1000), message_json(block, 71, 1000)

    assert (first["headers"], first["body"], first["size"]) == ({"trace": "1"}, "hello", 5)
    assert ("headers" in second, second["body"]) == (False, "bye")


@pytest.mark.parametrize(
    ("body", "encoding", "shown_as"),
    [
        (b"hello", "text", "hello"),
        (b"", "text", ""),
        ("süß".encode(), "text", "süß"),
        (b"12", "text", "12"),
        (b'{"a":', "text", '{"a":'),
        (b'{"a": [1.50,\n 123456789012345678901234567890]}', "json", None),
        (b" [1]", "json", None),
        (b"[" * 100_000 + b"]" * 100_000, "text", "[" * 100_000 + "]" * 100_000),
        (b"\xff\x00", "base64", "/wA="),
        (b'{"a":"\xff"}', "base64", "eyJhIjoi/yJ9"),
    ],
)
def test_body_is_json_text_or_base64(body, encoding, shown_as):
    found, value = body_of(body)

    assert found == encoding
    if shown_as is not None:
        assert value == shown_as


def test_json_is_shown_on_one_line_with_its_numbers_as_they_were():
    _, value = body_of(b'{"a": [1.50,\n 123456789012345678901234567890], "a": 2}')

    assert msgspec.json.encode({"b": value}) == b'{"b":{"a":[1.50,123456789012345678901234567890],"a":2}}'


def test_state_has_its_times_on_wall_clock():
    message_status = MessageStatus(MessageState.IN_FLIGHT, since_ns=1_000_000_000, until_ns=61_000_000_000)

    assert state_of(message_status, 2, 1_700_000_000_000_000_000, {"address": "127.0.0.1:5"}) == {
        "state": "in_flight",
        "since": "2023-11-14T22:13:21.000000000Z",
        "until": "2023-11-14T22:14:21.000000000Z",
        "client": {"address": "127.0.0.1:5"},
        "attempts": 2,
    }


def test_time_that_no_calendar_has_is_empty():
    assert time_text(1 << 70) == ""
    assert json.loads(json.dumps(time_text(0))) == "1970-01-01T00:00:00.000000000Z"
