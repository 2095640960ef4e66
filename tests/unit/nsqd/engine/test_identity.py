import pytest

from nsqclient.wire.errors import ProtocolError
from nsqd.engine.identity import Identity, IdentityLimits, check_identity, parse_identity

LIMITS = IdentityLimits(
    max_heartbeat_interval=60_000,
    min_output_buffer_timeout=25,
    max_output_buffer_timeout=30_000,
    max_output_buffer_size=65_536,
    max_msg_timeout=900_000,
)


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
def test_each_field_is_held_to_its_limits(field, allowed, refused):
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
def test_what_the_original_cannot_decode_is_refused(body):
    with pytest.raises(ProtocolError, match="E_BAD_BODY IDENTIFY failed to decode JSON body"):
        parse_identity(body)


def test_bytes_that_are_not_text_do_not_break_later_json():
    identity = parse_identity(b'{"client_id":"\xff","user_agent":"\\ud800"}')

    assert identity.client_id == "\ufffd"
    identity.user_agent.encode()
