"""Client settings are checked when they are made."""

import pytest

from nsqcore.client.options import ClientOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("read_timeout", 0.05),
        ("lookupd_poll_interval", 301),
        ("lookupd_poll_jitter", 1.5),
        ("max_attempts", 65536),
        ("sample_rate", 100),
        ("rdy_redistribute_interval", 0),
        ("default_requeue_delay", -1),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"{name} .* is out of range"):
        ClientOptions(**{name: value})


@pytest.mark.parametrize(
    "wish", [{"tls_v1": True}, {"deflate": True}, {"snappy": True}, {"auth_secret": "s"}]
)
def test_what_is_not_supported_yet_is_refused_by_name(wish):
    with pytest.raises(ValueError, match=f"{next(iter(wish))} is not supported yet"):
        ClientOptions(**wish)


def test_heartbeats_must_come_before_the_connection_counts_as_silent():
    with pytest.raises(ValueError, match="must not be above read_timeout"):
        ClientOptions(heartbeat_interval=31, read_timeout=30)


def test_an_unknown_strategy_is_refused():
    with pytest.raises(ValueError, match="not exponential or full_jitter"):
        ClientOptions(backoff_strategy="linear")


def test_identify_speaks_milliseconds():
    settings = ClientOptions(
        heartbeat_interval=1.5, msg_timeout=20, output_buffer_timeout=0.1
    ).identify_settings()

    assert settings["heartbeat_interval"] == 1500
    assert settings["msg_timeout"] == 20_000
    assert settings["output_buffer_timeout"] == 100
    assert settings["feature_negotiation"] is True
