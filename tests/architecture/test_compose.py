"""compose.yaml starts each daemon with flags that it knows, and publishes only its own ports."""

from pathlib import Path

import pytest
import yaml

from nsqadmin.options import NsqadminOptions
from nsqcore.options.options import parse
from nsqd.options import NsqdOptions
from nsqlookupd.options import NsqlookupdOptions

PROJECT = Path(__file__).parents[2]
FILE = yaml.safe_load((PROJECT / "compose.yaml").read_text(encoding="utf-8"))
DAEMONS = {"nsqlookupd": NsqlookupdOptions, "nsqd": NsqdOptions, "nsqadmin": NsqadminOptions}


def options_of(name):
    program, *flags = FILE["services"][name]["command"]
    return parse(DAEMONS[program], program, flags)


def port_of(address):
    return address.rpartition(":")[2]


def test_daemons_have_one_service_each():
    assert FILE["services"].keys() == DAEMONS.keys()


@pytest.mark.parametrize("name", DAEMONS)
def test_compose_publishes_listening_ports_on_loopback_only(name):
    options = options_of(name)
    listening = [getattr(options, "tcp_address", ""), *options.http_address]

    assert FILE["services"][name]["ports"] == [
        f"127.0.0.1:{port_of(address)}:{port_of(address)}" for address in listening if address
    ]


def test_nsqd_and_nsqadmin_find_nsqlookupd_by_name_of_its_service():
    lookupd = options_of("nsqlookupd")

    assert options_of("nsqd").lookupd_tcp_address == (f"nsqlookupd:{port_of(lookupd.tcp_address)}",)
    assert options_of("nsqadmin").nsqlookupd_http_addresses == (
        f"nsqlookupd:{port_of(lookupd.http_address[0])}",
    )


def test_services_are_announced_by_their_names():
    assert {options_of(name).broadcast_address for name in ("nsqd", "nsqlookupd")} == {"nsqd", "nsqlookupd"}
    assert options_of("nsqd").broadcast_address == "nsqd"


def test_data_of_nsqd_is_in_volume():
    nsqd = FILE["services"]["nsqd"]

    assert nsqd["volumes"] == ["nsqd-data:/data"]
    assert options_of("nsqd").data_path == "/data"
    assert "nsqd-data" in FILE["volumes"]


def test_file_systems_except_data_are_read_only():
    assert all(service["read_only"] for service in FILE["services"].values())


def test_compose_builds_without_compiler_and_names_other_builds_differently():
    (built,) = [service["build"] for service in FILE["services"].values() if "build" in service]

    assert built == {"context": ".", "args": {"NSQD_COMPILE": "${NSQD_COMPILE:-0}"}}
    # Another tag than in README's `docker build -t nsq-cluster .`, so that image is not replaced.
    assert {service["image"] for service in FILE["services"].values()} == {"nsq-cluster:compose"}
    assert "ARG NSQD_COMPILE=1" in (PROJECT / "Dockerfile").read_text(encoding="utf-8").splitlines()
