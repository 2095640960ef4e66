"""Client settings are checked when they are made, and can be read from words of a command line."""

from dataclasses import FrozenInstanceError

import pytest

from nsqclient._config import Config, check_option


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("read_timeout", 0.05),
        ("write_timeout", 301),
        ("lookupd_poll_interval", 301),
        ("lookupd_poll_jitter", 1.5),
        ("max_in_flight", -1),
        ("sample_rate", 100),
        ("deflate_level", 0),
        ("deflate_level", 10),
        ("rdy_redistribute_interval", 0),
        ("low_rdy_timeout", float("nan")),
    ],
)
def test_value_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"{name} .* is out of range"):
        Config(**{name: value})


@pytest.mark.parametrize("value", ["10", None, True])
def test_number_must_be_one(value):
    with pytest.raises(TypeError, match=r"max_in_flight .* is not a number"):
        Config(max_in_flight=value)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"deflate": True, "snappy": True}, "exclude each other"),
        ({"heartbeat_interval": 31, "read_timeout": 30}, "must not be above read_timeout"),
        ({"backoff_strategy": "linear"}, "not exponential or full_jitter"),
        ({"local_addr": "10.0.0.1"}, "is not host:port"),
        ({"tls": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        Config(**settings)


@pytest.mark.parametrize("wrong", [None, 1])
def test_tls_of_another_type_is_refused(wrong):
    with pytest.raises(TypeError, match="tls"):
        Config(tls=wrong)


def test_config_is_immutable():
    with pytest.raises(FrozenInstanceError):
        Config().max_in_flight = 2


def test_secret_is_not_shown():
    assert "hush" not in repr(Config(auth_secret="hush"))


def test_identify_speaks_milliseconds():
    settings = Config(heartbeat_interval=1.5, msg_timeout=20, output_buffer_timeout=0.1).identify_settings()

    assert settings["heartbeat_interval"] == 1500
    assert settings["msg_timeout"] == 20_000
    assert settings["output_buffer_timeout"] == 100
    assert settings["feature_negotiation"] is True


def test_minus_one_turns_buffering_and_heartbeats_off():
    settings = Config(heartbeat_interval=-1, output_buffer_timeout=-1).identify_settings()

    assert (settings["heartbeat_interval"], settings["output_buffer_timeout"]) == (-1, -1)


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [
        ("max_in_flight,200", "max_in_flight", 200),
        ("max-in-flight,200", "max_in_flight", 200),
        ("read_timeout,1m30s", "read_timeout", 90),
        ("msg_timeout, 250ms", "msg_timeout", 0.25),
        ("lookupd_poll_jitter,0.5", "lookupd_poll_jitter", 0.5),
        ("snappy", "snappy", True),
        ("snappy,false", "snappy", False),
        ("client_id,a,b", "client_id", "a,b"),
        ("auth_secret,hush", "auth_secret", "hush"),
        ("tls_v1", "tls", True),
        ("skip_lookupd_authorization,false", "lookupd_authorization", False),
    ],
)
def test_options_are_read_as_command_lines_give_them(option, name, value):
    assert getattr(Config().with_options(option), name) == value


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("bogus", "invalid option bogus"),
        ("tls_config,x", "invalid option tls_config"),
        ("read_timeout,90", "failed to coerce option read_timeout .90. - time: missing unit"),
        ("max_in_flight,many", "failed to coerce option max_in_flight"),
        ("snappy,perhaps", "failed to coerce option snappy"),
        ("sample_rate,100", "sample_rate 100 is out of range"),
        ("tls_root_ca_file,/nowhere/ca.pem", "tls_root_ca_file '/nowhere/ca.pem'"),
        ("tls_cert,/nowhere/cert.pem", "needed together"),
        ("tls_insecure_skip_verify,true", "without tls_v1"),
        ("tls_min_version,tls9", "tls_min_version 'tls9' is none of"),
    ],
)
def test_option_that_cannot_be_used_is_refused_by_name(option, complaint):
    with pytest.raises(ValueError, match=complaint):
        Config().with_options(option)


def test_options_keep_what_they_do_not_name():
    config = Config(max_in_flight=7).with_options("snappy")

    assert (config.max_in_flight, config.snappy) == (7, True)


def test_option_is_checked_alone():
    # 10 s is below the default heartbeat_interval, which another option may lower.
    assert check_option("read-timeout,10s") == ("read_timeout", 10)
