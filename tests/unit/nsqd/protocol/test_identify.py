import pytest

from nsqclient.wire.errors import ProtocolError
from nsqd.engine.credit import ELSEWHERE, SAME_REGION, SAME_ZONE
from nsqd.engine.limits import Limits
from nsqd.protocol.identify import Identity, check_identity, nearness, parse_identity

LIMITS = Limits()
HERE = Limits(topology_zone="z1", topology_region="r1")


@pytest.mark.parametrize(
    ("field", "allowed", "refused"),
    [
        ("heartbeat_interval", [-1, 0, 1000, 60_000], [-2, 1, 999, 60_001]),
        ("output_buffer_timeout", [-1, 0, 25, 30_000], [-2, 1, 24, 30_001]),
        ("output_buffer_size", [-1, 0, 64, 65_536], [-2, 1, 63, 65_537]),
        ("sample_rate", [0, 1, 99], [-1, 100]),
        ("msg_timeout", [0, 1000, 900_000], [-1, 1, 999, 900_001]),
    ],
)
def test_identify_fields_have_limits(field, allowed, refused):
    for value in allowed:
        check_identity(Identity(**{field: value}), LIMITS)
    for value in refused:
        with pytest.raises(
            ProtocolError, match=rf"IDENTIFY {field.replace('_', ' ')} \({value}\) is invalid"
        ):
            check_identity(Identity(**{field: value}), LIMITS)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"7",
        b'"x"',
        b"{",
        b"{}{}",
        b'{"client_id":1}',
        b'{"deflate":1}',
        b'{"msg_timeout":true}',
        b'{"msg_timeout":1.0}',
        b'{"msg_timeout":"1000"}',
        b'{"msg_timeout":9223372036854775808}',
        b'{"sample_rate":2147483648}',
        b'{"x":NaN}',
        b"[" * 100_000,
    ],
)
def test_identify_body_is_json_as_original_decodes_it(body):
    with pytest.raises(ProtocolError, match="E_BAD_BODY IDENTIFY failed to decode JSON body"):
        parse_identity(body)


def test_bytes_that_are_not_text_do_not_break_later_json():
    identity = parse_identity(b'{"client_id":"\xff","user_agent":"\\ud800"}')

    assert identity.client_id == "\ufffd"
    identity.user_agent.encode()


@pytest.mark.parametrize(
    ("zone", "region", "expected"),
    [
        ("z1", "r1", SAME_ZONE),
        ("z1", "r2", SAME_ZONE),  # as in the original: the zone alone decides
        ("z2", "r1", SAME_REGION),
        ("z2", "r2", ELSEWHERE),
        ("", "", ELSEWHERE),
    ],
)
def test_client_is_as_near_as_it_says(zone, region, expected):
    assert nearness(HERE, Identity(topology_zone=zone, topology_region=region)) == expected


def test_nsqd_that_knows_no_place_is_near_nobody():
    assert nearness(Limits(), Identity()) == ELSEWHERE
    assert nearness(Limits(topology_region="r"), Identity(topology_region="r")) == SAME_REGION
