"""The rendered command lines, read by the daemons' own option parsers."""

import importlib
import json

import pytest

from nsqcore.options.options import DaemonOptions, parse, specs
from nsqtools.kube.place import ZONE_LABEL, zone_lines
from tests.deploy.release import CHART, render

DAEMONS = {
    "nsqd": "NsqdOptions",
    "nsqlookupd": "NsqlookupdOptions",
    "nsqadmin": "NsqadminOptions",
}

# Flags that no value can set: the chart sets them itself, they make no sense in a container, they need files
# (certificates) that the chart does not mount yet, or nsqd does not support them yet and refuses them.
NOT_VALUES = {
    "nsqd": "version config verbose worker-id data-path node-id broadcast-address lookupd-tcp-address"
    " tcp-address http-address https-address"
    " tls-cert tls-key tls-client-auth-policy tls-root-ca-file tls-required tls-min-version"
    " replicas replica replication-tls cluster-secret-file",
    "nsqlookupd": "version config verbose broadcast-address tcp-address http-address lookupd-http-address"
    " https-address tls-cert tls-key tls-required tls-min-version tls-root-ca-file",
    "nsqadmin": "version config verbose https-address tls-cert tls-key tls-required tls-min-version"
    " auth-secret-file auth-allow-cleartext http-address lookupd-http-address nsqd-http-address"
    " dev-static-dir http-client-tls-root-ca-file http-client-tls-cert http-client-tls-key"
    " oidc-issuer oidc-client-id oidc-client-secret-file session-secret-file api-token-file audit-file",
}


def options_class(daemon: str) -> type[DaemonOptions]:
    found = getattr(importlib.import_module(f"{daemon}.options"), DAEMONS[daemon])
    assert issubclass(found, DaemonOptions)
    return found


@pytest.mark.parametrize("daemon", DAEMONS)
def test_daemon_understands_its_command_line(release, daemon, tmp_path):
    if not release.values[daemon].get("enabled", True):
        pytest.skip("this value set installs no nsqadmin")
    # The file that the container "place" writes; see tests/unit/nsqtools/kube.
    (tmp_path / "nsqd.toml").write_text(
        "\n".join([*zone_lines({ZONE_LABEL: "a"}), "broadcast_tcp_port = 30150"])
    )
    line = release.command_line(daemon, index=0)

    options = parse(
        options_class(daemon),
        daemon,
        [word.replace("/place/nsqd.toml", f"{tmp_path}/nsqd.toml") for word in line],
    )

    assert isinstance(options, DaemonOptions)


def test_chart_values_equal_daemon_settings(chart):
    values = {"nsqd": {"config": {"msg-timeout": "2m", "max-msg-size": 10485760, "snappy": False}}}
    line = render(chart, values).command_line("nsqd", index=1)

    options = parse(options_class("nsqd"), "nsqd", line)

    assert options.msg_timeout == 120 * 10**9
    assert options.max_msg_size == 10485760
    assert options.snappy is False
    assert options.node_id == 1
    assert options.data_path == "/data"
    assert len(options.lookupd_tcp_address) == 2


@pytest.mark.parametrize("daemon", DAEMONS)
def test_flags_of_daemon_are_values_or_known_exceptions(daemon):
    schema = json.loads((CHART / "values.schema.json").read_text())
    offered = set(schema["properties"][daemon]["properties"]["config"]["properties"])
    known = {spec.flag for spec in specs(options_class(daemon))}

    assert offered == known - set(NOT_VALUES[daemon].split())


def sample(kind: str) -> object:
    """Return a value that the schema allows for a flag of this kind."""
    return {
        "string": "x",
        "boolean": False,
        "count": 4096,
        "strings": ["x", "y"],
        "logLevel": "error",
        "duration": "1m30s",
        "percentiles": [0.5, 1],
    }[kind]


@pytest.mark.parametrize("daemon", DAEMONS)
def test_flags_take_values_that_schema_allows(chart, daemon):
    schema = json.loads((CHART / "values.schema.json").read_text())
    flags = schema["properties"][daemon]["properties"]["config"]["properties"]
    # Flags that accept only a few values.
    special = {
        "alert-format": "slack",
        "alert-limit": ["*:depth:1000"],
        "allow-config-from-cidr": "10.0.0.0/8",
        "auth-http-request-method": "post",
        "busy-poll": "50us",
        "disk-watermark": "5%",
        "catch-up-rate": "10MB",
        "max-deflate-level": 3,
        "role": ["admin:user=anna"],
        "statsd-address": "statsd:8125",
        "trace-url": "https://traces.example/{trace_id}",
        "replicas-missing": "refuse",
    }
    values = {
        flag: special.get(flag, sample(what["$ref"].rpartition("/")[2])) for flag, what in flags.items()
    }
    line = render(chart, {daemon: {"config": values}}).command_line(daemon)

    options = parse(options_class(daemon), daemon, line)

    assert options.log_level.name == "ERROR"
