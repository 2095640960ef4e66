"""How nsq_peek prints a message, without an nsqd."""

import json

import msgspec
import pytest

from nsqtools.nsq_peek.formats import line, read_page

MESSAGE = {
    "id": "0006441f0a1c2b3d",
    "sequence": 7,
    "timestamp": 1763816885000000000,
    "time": "2025-11-22T13:08:05.000000000Z",
    "size": 3,
    "encoding": "text",
    "body": "one",
}


def raw(**more: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(MESSAGE | more).encode())


@pytest.mark.parametrize(
    ("more", "printed"),
    [
        ({}, b"one\n"),
        ({"body": 'a "quoted" \u00e9'}, 'a "quoted" \u00e9\n'.encode()),
        ({"encoding": "base64", "body": "AP8="}, b"\x00\xff\n"),
        ({"encoding": "json", "body": {"a": [1]}}, b'{"a": [1]}\n'),
    ],
)
def test_body_alone_is_as_it_was_published(more, printed):
    assert line("body", "a:1", raw(**more), headers=False) == printed


def test_json_in_body_keeps_digits_of_its_numbers():
    message = json.dumps(MESSAGE | {"encoding": "json", "body": 0}).replace(": 0}", ': {"n":1.10}}')

    assert line("body", "a:1", msgspec.Raw(message.encode()), headers=False) == b'{"n":1.10}\n'


def test_line_of_text_has_time_id_state_and_body():
    begin = b"2025-11-22T13:08:05.000000000Z 0006441f0a1c2b3d "

    assert line("text", "a:1", raw(), headers=False) == begin + b"one\n"
    assert line("text", "a:1", raw(state="waiting"), headers=False) == begin + b"waiting one\n"


def test_bytes_that_are_no_text_are_not_written_to_terminal():
    assert line("text", "a:1", raw(encoding="base64", body="AP8="), headers=False).endswith(b" base64:AP8=\n")


@pytest.mark.parametrize("output", ["text", "body"])
def test_headers_stand_before_body(output):
    assert line(output, "a:1", raw(headers={"k": "v"}), headers=True).endswith(b'{"k": "v"} one\n')
    assert b"{" not in line(output, "a:1", raw(headers={"k": "v"}), headers=False)


def test_json_line_is_all_that_nsqd_said_and_names_it():
    assert json.loads(line("json", "a:1", raw(place=3), headers=False)) == {
        "nsqd": "a:1",
        **MESSAGE,
        "place": 3,
    }


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"messages":[],"next":5,"more":false}'])
def test_invalid_answer_to_messages_is_refused(answer):
    with pytest.raises(ValueError):
        read_page(answer)
