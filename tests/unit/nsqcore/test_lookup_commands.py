import json

import pytest

from nsqclient.wire.errors import ProtocolError
from nsqcore.lookup_protocol import (
    MAGIC_V1,
    MAX_BODY,
    MAX_LINE,
    Available,
    CommandParser,
    Identify,
    LookupdInfo,
    PeerInfo,
    Ping,
    Register,
    ReplyParser,
    Unregister,
    decode_lookupd_info,
    decode_peer_info,
    encode_available,
    encode_registrations,
)

FIELDS = {"broadcast_address": "host", "tcp_port": 4150, "http_port": 4151, "version": "1.3.0"}


@pytest.fixture
def parser():
    parser = CommandParser()
    parser.feed(b"  V1")
    return parser


def commands(parser, data):
    parser.feed(data)
    return list(iter(parser.next_command, None))


def test_everything_is_announced_by_its_channels_or_by_itself():
    assert encode_registrations([("a", []), ("b", ["y", "x"])]) == [
        b"REGISTER a\n",
        b"REGISTER b x\n",
        b"REGISTER b y\n",
    ]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b"PING\r\n", Ping()),
        (b"  PING  now \n", Ping()),
        (b"REGISTER a b c d\n", Register("a", "b")),
        (b"REGISTER  t\n", Register("", "t")),
        (b"REGISTER\n", Register(None)),
        (b"UNREGISTER t\n", Unregister("t")),
    ],
)
def test_line_is_stripped_and_split_on_single_blanks(parser, line, command):
    assert commands(parser, line) == [command]


def test_longest_line_and_body_are_accepted(parser):
    line = b"PING " + b"x" * (MAX_LINE - 5) + b"\n"
    body = b"IDENTIFY\n" + MAX_BODY.to_bytes(4, "big") + b"y" * MAX_BODY

    assert commands(parser, line + body) == [Ping(), Identify(b"y" * MAX_BODY)]


def test_identify_names_nsqd():
    body = json.dumps({**FIELDS, "hostname": "h", "topology_zone": "z", "topology_region": "r", "more": []})

    assert decode_peer_info(body.encode()) == PeerInfo("host", 4150, 4151, "1.3.0", "h", "z", "r")


def test_identify_may_have_identity_and_accept_replicas():
    said = {**FIELDS, "identity": "0f" * 16, "accepts_replicas": True}

    info = decode_peer_info(json.dumps(said).encode())

    assert (info.identity, info.accepts_replicas) == ("0f" * 16, True)


@pytest.mark.parametrize(
    "other",
    [
        {"identity": "me", "accepts_replicas": 1},
        {"identity": 5, "accepts_replicas": "yes"},
        {"identity": "0F" * 16},
        {"identity": "0f" * 16 + "\n"},
        {},
    ],
)
def test_identify_ignores_identity_of_another_form(other):
    info = decode_peer_info(json.dumps(FIELDS | other).encode())

    assert (info.identity, info.accepts_replicas) == ("", False)


def test_keys_match_in_any_letter_case_and_null_is_nothing():
    body = b'{"Broadcast_Address":"h","TCP_PORT":1,"http_port":-2,"VERSION":"garbage","hostname":null}'

    assert decode_peer_info(body) == PeerInfo("h", 1, -2, "garbage")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"5",
        b'{"tcp_port":"4150"}',
        b'{"tcp_port":1.5}',
        b'{"tcp_port":4150.0}',
        b'{"tcp_port":true}',
        b'{"tcp_port":99999999999999999999}',
        b'{"hostname":5}',
        b'{"tcp_port":NaN}',
        json.dumps(FIELDS).encode() + b" x",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_json_of_another_shape_cannot_be_decoded(body):
    with pytest.raises(ProtocolError) as refused:
        decode_peer_info(body)

    assert refused.value.payload() == b"E_BAD_BODY IDENTIFY failed to decode JSON body"


@pytest.mark.parametrize("missing", sorted(FIELDS))
@pytest.mark.parametrize("how", ["absent", "empty"])
def test_four_fields_must_be_there(missing, how):
    fields = dict(FIELDS)
    if how == "absent":
        del fields[missing]
    else:
        fields[missing] = 0 if missing.endswith("port") else ""
    with pytest.raises(ProtocolError) as refused:
        decode_peer_info(json.dumps(fields).encode())

    assert refused.value.payload() == b"E_BAD_BODY IDENTIFY missing fields"


def test_text_that_could_not_be_sent_on_is_repaired():
    body = json.dumps({**FIELDS, "hostname": "\ud800x"}).encode()
    bytes_that_are_no_utf8 = body.replace(b'"host"', b'"ho\xffst"')

    info = decode_peer_info(bytes_that_are_no_utf8)

    assert info.hostname == "\ufffdx"
    assert info.broadcast_address == "ho\ufffdst"


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x65"])
def test_reply_of_impossible_size_is_refused(size):
    parser = ReplyParser(100)
    parser.feed(size)

    with pytest.raises(ProtocolError):
        parser.next_reply()


def test_answer_to_identify_tells_where_nsqlookupd_is():
    payload = b'{"broadcast_address":"h","hostname":"x","http_port":4161,"tcp_port":4160,"version":"1.3.0"}'

    assert decode_lookupd_info(payload) == LookupdInfo("h", 4160, 4161, "1.3.0")
    assert decode_lookupd_info(b"{}") == LookupdInfo("", 0, 0, "")


@pytest.mark.parametrize("payload", [b"E_INVALID", b"", b"[]", b"\xff"])
def test_answer_to_identify_that_is_no_object_is_refused(payload):
    with pytest.raises(ValueError):
        decode_lookupd_info(payload)


# -- additions to the original --------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "obstacle"),
    [
        (b"AVAILABLE\n", ""),
        (b"UNAVAILABLE draining\n", "draining"),
        (b"UNAVAILABLE\n", "unavailable"),
        (b"UNAVAILABLE \n", "unavailable"),
    ],
)
def test_whether_publishes_are_taken_is_one_line(line, obstacle):
    parser = CommandParser()
    parser.feed(MAGIC_V1 + line)

    assert parser.next_command() == Available(obstacle)


@pytest.mark.parametrize("obstacle", ["", "draining"])
def test_availability_is_read_back(obstacle):
    parser = CommandParser()
    parser.feed(MAGIC_V1 + encode_available(obstacle))

    assert parser.next_command() == Available(obstacle)


@pytest.mark.parametrize(("text", "takes"), [(b"true", True), (b"1", False), (b"null", False)])
def test_info_says_whether_nsqlookupd_takes_availability(text, takes):
    assert decode_lookupd_info(b'{"availability":%b}' % text).accepts_availability is takes
    assert decode_lookupd_info(b"{}").accepts_availability is False
