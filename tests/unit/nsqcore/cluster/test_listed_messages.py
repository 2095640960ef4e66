import msgspec
import pytest

from nsqcore.cluster.listed_messages import ListedMessages

MESSAGE = (
    b'{"id":"0123456789abcdef","sequence":7,"timestamp":1,"time":"","size":8,'
    b'"encoding":"json","body":{"a": 1.10}}'
)


def read(text):
    return msgspec.json.decode(text, type=ListedMessages)


def test_body_stays_as_it_was_written():
    answer = read(b'{"first":1,"end":9,"next":"8","more":true,"scanned":5,"new":1,"messages":[%b]}' % MESSAGE)

    assert bytes(answer.messages[0].body) == b'{"a": 1.10}'
    assert (answer.next, answer.more, answer.messages[0].state) == ("8", True, "")


@pytest.mark.parametrize("text", [b"{}", b"[]", b'{"first":1,"end":9,"messages":[{}]}', b"no"])
def test_invalid_answer_is_refused(text):
    with pytest.raises(msgspec.DecodeError):
        read(text)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("text", b'{"a":1}'),
        ("text", b"7"),
        ("base64", b'"no!"'),
        ("base64", b'"YQ"'),
        ("json", b'{"a":"\xff"}'),
    ],
)
def test_body_in_wrong_encoding_makes_answer_unusable(encoding, body):
    told = MESSAGE.replace(b'"json"', b'"%b"' % encoding.encode()).replace(b'{"a": 1.10}', body)

    with pytest.raises(ValueError, match=r"Expected `str`|base64|padding|utf-8"):
        read(b'{"first":1,"end":9,"messages":[%b]}' % told)
