"""Finds out where a broker runs, before it starts: an init container of the chart.

    python -m nsqtools.kube.place --output=/place/nsqd.toml --node=worker-3
    python -m nsqtools.kube.place --output=FILE --namespace=mq --service=mq-nsqd-0 --host-address=10.0.0.3

It writes a config file for nsqd: region and zone from the labels of the node, and the address and the ports
at which the Service of the pod is reached from outside. A broker can work without a zone, so a failure to
read it is only reported. Without the address consumers would not find the broker, so the program ends with 1
and the kubelet tries again.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nsqclient.wire.durations import SECOND
from nsqcore.options.arguments import duration_of
from nsqcore.process.output import write_message
from nsqtools.kube.access import ApiFailed, KubeApi, in_cluster

REGION_LABEL: Final = "topology.kubernetes.io/region"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class AddressOptions:
    output: Path
    timeout_s: float
    node: str
    namespace: str
    service: str
    host_address: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outside:
    """The address at which clients outside the cluster reach a broker."""

    address: str
    tcp_port: int
    http_port: int


def zone_lines(labels: dict[str, str]) -> list[str]:
    """Region and zone as lines of nsqd's config file; no line for a missing label."""
    keys = (("topology_region", REGION_LABEL), ("topology_zone", ZONE_LABEL))
    return [f"{key} = {_toml(labels[label])}" for key, label in keys if labels.get(label)]


def outside_lines(outside: Outside) -> list[str]:
    return [
        f"broadcast_address = {_toml(outside.address)}",
        f"broadcast_tcp_port = {outside.tcp_port}",
        f"broadcast_http_port = {outside.http_port}",
    ]


def outside_of(service: Any, host_address: str, addresses: Sequence[str]) -> Outside | None:
    """Return the address of one broker's Service; None while it has none yet."""
    ports = {port.name: port for port in service.spec.ports}
    balanced = service.spec.type == "LoadBalancer"
    index = int(service.metadata.name.rpartition("-")[2])
    given = addresses[index] if index < len(addresses) else ""
    if balanced:
        entries = (service.status.load_balancer.ingress if service.status.load_balancer else None) or []
        found = next((entry.hostname or entry.ip for entry in entries if entry.hostname or entry.ip), "")
    else:
        found = host_address
    numbers = [ports[name].port if balanced else ports[name].node_port for name in ("tcp", "http")]
    # A load balancer without an address cannot be used yet, even if a name is given for it.
    if not found or not all(numbers):
        return None
    return Outside(given or found, *numbers)


def wait_for_outside(api: KubeApi, options: AddressOptions) -> Outside:
    """Return the address of the pod's Service as soon as it has one. Raises ApiFailed."""
    while True:
        service = api.service(options.namespace, options.service)
        found = outside_of(service, options.host_address, options.addresses)
        version = service.metadata.resource_version
        changes = iter(()) if found else api.changes_of_service(options.namespace, options.service, version)
        for changed in changes:
            found = outside_of(changed, options.host_address, options.addresses)
            if found:
                break
        if found:
            return found
        if api.left_s <= 1:
            raise ApiFailed(f"the Service {options.service} has no address after {options.timeout_s:.0f}s")


def place(options: AddressOptions, api: KubeApi) -> None:
    """Write the config file. Raises ApiFailed and OSError."""
    lines = []
    if options.node:
        try:
            lines += zone_lines(api.node_labels(options.node))
        except ApiFailed as error:
            _log(f"the zone of this broker stays unknown: {error}")
    if options.service:
        lines += outside_lines(wait_for_outside(api, options))
    options.output.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    _log(f"wrote {', '.join(lines) or 'nothing'} to {options.output}")


def parse_arguments(argv: Sequence[str] | None) -> AddressOptions:
    parser = ArgumentParser(prog="nsqtools.kube.place", description="Find out where a broker runs.")
    add = parser.add_argument
    add("--output", required=True, type=Path, metavar="FILE", help="the config file for nsqd")
    add("--timeout", default=60 * SECOND, type=duration_of, help="how long it may take, such as 5m")
    add("--node", default="", help="the node whose labels name region and zone")
    add("--namespace", default="", help="of the Service")
    add("--service", default="", help="the Service that leads to this broker from outside")
    add("--host-address", default="", help="the address of the node, for a Service of type NodePort")
    add("--address", default=[], action="append", help="what to announce instead, for broker 0, 1, ...")
    given = parser.parse_args(argv)
    return AddressOptions(
        given.output,
        given.timeout / SECOND,
        given.node,
        given.namespace,
        given.service,
        given.host_address,
        tuple(given.address),
    )


def _toml(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _log(text: str) -> None:
    write_message(f"place: {text}")


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        place(options, in_cluster(options.timeout_s))
    except (ApiFailed, OSError) as error:
        _log(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
