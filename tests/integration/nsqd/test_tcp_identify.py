"""Section 2.6 IDENTIFY and 2.7: what a client may report of itself, and which features it is granted."""

import json

import pytest

from tests.support import beside
from tests.support.waiting import wait_until
from tests.support.wire import identify, pub, rdy, size, sized, sub

GRANTED = {
    "max_rdy_count": 2500,
    "version": "1.3.0",
    "max_msg_timeout": 900000,
    "msg_timeout": 60000,
    "tls_v1": False,
    "deflate": False,
    "deflate_level": 6,
    "max_deflate_level": 6,
    "snappy": False,
    "sample_rate": 0,
    "auth_required": False,
    "output_buffer_size": 16384,
    "output_buffer_timeout": 250,
    **({"topology_region": "", "topology_zone": ""} if beside.OURS else {}),  # the original's master branch
}

MAX_BODY = 5242880


def raw(body: bytes) -> bytes:
    return b"IDENTIFY\n" + sized(body)


def test_answer_has_every_key_in_originals_order(wire):
    granted = wire.identify()
    assert granted == GRANTED
    assert list(granted) == list(GRANTED)


def test_answer_is_json_without_spaces(wire):
    answer = wire.ask(identify(feature_negotiation=True))
    assert answer == json.dumps(GRANTED, separators=(",", ":")).encode()


@pytest.mark.parametrize("body", [b"{}", b"null", b'{"feature_negotiation":false,"snappy":true}', b" {} \n"])
def test_answer_without_feature_negotiation_is_ok(wire, topic, body):
    assert wire.ask(raw(body)) == b"OK"
    wire.publish(topic, b"in the clear")


def test_identify_is_optional(wire, topic):
    wire.subscribe(topic, ready=1)
    wire.publish(topic, b"m")
    assert wire.message().body == b"m"


def test_identify_may_be_repeated_and_may_follow_publish(wire, topic):
    assert wire.ask(raw(b"{}")) == b"OK"
    wire.publish(topic, b"m")
    assert wire.identify(msg_timeout=5000)["msg_timeout"] == 5000
    assert wire.identify()["msg_timeout"] == 60000


def test_tls_without_certificate_is_not_granted_and_connection_stays_plain(wire, topic):
    assert wire.identify(tls_v1=True)["tls_v1"] is False
    wire.publish(topic, b"in the clear")


@pytest.mark.parametrize(
    ("field", "what", "legal", "illegal"),
    [
        ("heartbeat_interval", "heartbeat interval", [-1, 0, 1000, 60000], [-2, 1, 999, 60001]),
        ("output_buffer_timeout", "output buffer timeout", [-1, 0, 25, 30000], [-2, 1, 24, 30001]),
        ("output_buffer_size", "output buffer size", [-1, 0, 64, 65536], [-2, 1, 63, 65537]),
        ("sample_rate", "sample rate", [0, 1, 99], [-1, 100, 2**31 - 1]),
        ("msg_timeout", "msg timeout", [0, 1000, 900000], [-1, 1, 999, 900001]),
    ],
)
def test_settings_have_limits(connect, field, what, legal, illegal):
    for value in legal:
        connect().identify(**{field: value})
    for value in illegal:
        refused = connect().refusal(identify(**{field: value}))
        assert refused == f"E_BAD_BODY IDENTIFY {what} ({value}) is invalid".encode()


def test_first_setting_out_of_range_is_named(wire):
    refused = wire.refusal(
        identify(msg_timeout=1, sample_rate=-1, output_buffer_size=1, heartbeat_interval=5000)
    )
    assert refused == b"E_BAD_BODY IDENTIFY output buffer size (1) is invalid"


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'"text"',
        b"1",
        b"{",
        b"{} x",
        b'{"client_id":5}',
        b'{"feature_negotiation":"true"}',
        b'{"feature_negotiation":1}',
        b'{"heartbeat_interval":"1000"}',
        b'{"heartbeat_interval":1000.0}',
        b'{"heartbeat_interval":1e3}',
        b'{"heartbeat_interval":9223372036854775808}',
        b'{"sample_rate":2147483648}',
        b'{"msg_timeout":NaN}',
        b'{"client_id":"a\nb"}',
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_non_object_body_cannot_be_decoded(wire, body):
    assert wire.refusal(raw(body)) == b"E_BAD_BODY IDENTIFY failed to decode JSON body"


def test_keys_are_read_in_any_letter_case_and_the_last_of_equal_ones_wins(wire):
    answer = wire.ask(raw(b'{"Feature_Negotiation":true,"msg_timeout":2000,"MSG_TIMEOUT":3000}'))
    assert json.loads(answer)["msg_timeout"] == 3000


def test_null_is_absent_and_unknown_keys_are_ignored(wire):
    answer = wire.ask(
        raw(
            b'{"feature_negotiation":true,"msg_timeout":null,"short_id":"x","long_id":7,"extend_support":[1]}'
        )
    )
    assert json.loads(answer) == GRANTED


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (0, b"E_BAD_BODY IDENTIFY invalid body size 0"),
        (-1, b"E_BAD_BODY IDENTIFY invalid body size -1"),
        (MAX_BODY + 1, b"E_BAD_BODY IDENTIFY body too big 5242881 > 5242880"),
    ],
)
def test_size_of_body_is_limited(wire, number, error):
    assert wire.refusal(b"IDENTIFY\n", size(number)) == error


def test_body_of_exactly_limit_is_read(wire):
    wire.send(raw(b"{}" + b" " * (MAX_BODY - 2)))
    wire.ok()


@pytest.mark.parametrize("number", [0, -1, MAX_BODY + 1])
def test_size_of_auth_body_is_limited_too(wire, number):
    error = f"body too big {number} > {MAX_BODY}" if number > 0 else f"invalid body size {number}"
    assert wire.refusal(b"AUTH\n", size(number)) == f"E_BAD_BODY AUTH {error}".encode()


def test_sub_needs_heartbeats(wire, topic):
    wire.identify(heartbeat_interval=-1)
    wire.publish(topic, b"a producer needs none")
    assert wire.refusal(sub(topic, "ch")) == b"E_INVALID cannot SUB with heartbeats disabled"


def test_client_identity_is_in_statistics(wire, topic, stats):
    wire.identify(
        client_id="me",
        hostname="my-host",
        user_agent="demo/1.0",
        topology_zone="z1",
        topology_region="r1",
        sample_rate=7,
    )
    wire.subscribe(topic)
    (client,) = stats(topic, "ch")["clients"]
    said = {"client_id": "me", "hostname": "my-host", "user_agent": "demo/1.0", "sample_rate": 7}
    if beside.OURS:  # in the original's master branch
        said |= {"topology_zone": "z1", "topology_region": "r1"}
    assert said.items() <= client.items()


def test_client_is_known_by_its_address_before_identify(wire, topic, stats):
    wire.subscribe(topic)
    (client,) = stats(topic, "ch")["clients"]
    assert (client["client_id"], client["hostname"]) == ("127.0.0.1", "127.0.0.1")


def test_identify_without_names_clears_them(wire, topic, stats):
    assert wire.ask(raw(b"{}")) == b"OK"
    wire.subscribe(topic)
    (client,) = stats(topic, "ch")["clients"]
    assert (client["client_id"], client["hostname"]) == ("", "")


@pytest.mark.parametrize(("rate", "low", "high"), [(1, 1, 60), (50, 350, 670), (99, 1000, 1000)])
def test_sample_rate_delivers_that_share_and_the_rest_is_gone(wire, topic, stats, rate, low, high):
    wire.identify(sample_rate=rate)
    wire.subscribe(topic)
    wire.send(b"".join(pub(topic, b"%d" % n) for n in range(1000)))
    wire.ok(1000)
    wire.send(rdy(2500))
    wait_until(lambda: not stats(topic, "ch")["depth"], "the channel is drained")
    received = stats(topic, "ch")["in_flight_count"]
    assert low <= received <= high
    assert len(wire.messages(received)) == received
    wire.quiet()
