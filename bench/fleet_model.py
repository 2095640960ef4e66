"""``python -m bench.fleet_model``: computes the cost of a cluster of any size from the cost of its parts.

The constants were measured on small fleets by ``python -m bench.fleet_checks``, which also compares their
predictions for 50 processes and for 1,000 stubs with measurements.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

MB: Final = 1e6


@dataclass(frozen=True, slots=True)
class Constants:
    """The cost of single parts; the suffix of each name is its unit."""

    # nsqlookupd
    lookupd_base_mb: float = 44.5
    lookupd_node_kb: float = 2.4
    """Memory for each nsqd, without its registrations."""
    lookupd_registration_bytes: float = 150.0
    """Memory for each topic and each channel of each nsqd."""
    register_us: float = 2.6
    """CPU of a REGISTER, when a node comes back."""
    ping_us: float = 85.0
    """Of one that comes by itself; of many that come at once it is a fifth."""
    lookup_us: float = 265.0
    lookup_node_us: float = 0.25
    """More of a /lookup for each nsqd in the answer."""
    lookup_node_bytes: float = 221.0
    nodes_topic_bytes: float = 19.0
    """More of /nodes for each topic of each nsqd: name and tombstone."""
    # nsqd
    nsqd_base_mb: float = 58.2
    nsqd_idle_us_per_s: float = 1080.0
    """CPU a second of an nsqd that only registers and is asked now and then."""
    nsqd_topic_kb: float = 8.9
    nsqd_connection_kb: float = 10.5
    heartbeat_us: float = 190.0
    publish_us: float = 0.6
    """A message in an MPUB; a PUB that is awaited takes ten times as much."""
    deliver_us: float = 0.5
    copy_us: float = 0.8
    """A message that a keeper takes, on the keeper; about as much on its home."""
    # nsqadmin
    admin_base_mb: float = 55.8
    poll_us: float = 390.0
    """CPU of asking an nsqd for /stats and taking the answer in, without its channels."""
    poll_channel_us: float = 8.7
    admin_node_kb: float = 23.5
    admin_channel_bytes: float = 1000.0
    """Memory for each channel of each nsqd, with its history."""
    # a consumer
    consumer_base_kb: float = 17.0
    """Memory for a consumer in a process that has others, without its connections."""
    consumer_start_us: float = 1240.0
    """CPU until it has asked nsqlookupd."""
    consumer_connection_kb: float = 6.6
    consumer_connect_us: float = 370.0
    consumer_heartbeat_us: float = 35.0
    consumer_lookup_node_us: float = 1.5
    """Reading one nsqd of an answer to /lookup."""


LOOKUP_EVERY_S: Final = 60.0
PING_EVERY_S: Final = 15.0
HEARTBEAT_EVERY_S: Final = 30.0
ADMIN_SHARE: Final = 0.15
# How long an idle connection keeps its turn if there are more connections than RDY to share.
LOW_RDY_IDLE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """A cluster. Each topic is on *spread* nsqd (0: on all), and each of its channels has *consumers*."""

    nsqds: int
    topics: int = 1000
    channels: int = 2
    consumers: int = 2
    """Processes that read one channel."""
    spread: int = 0
    rate: float = 100_000.0
    """Messages a second, all topics together."""
    size: int = 200
    copies: int = 0
    zones: int = 3
    lookupds: int = 3
    max_in_flight: int = 200
    poll_every_s: float = 2.0

    @property
    def nodes_of_topic(self) -> int:
        return min(self.spread or self.nsqds, self.nsqds)

    @property
    def topics_of_node(self) -> float:
        return self.topics * self.nodes_of_topic / self.nsqds

    @property
    def readers(self) -> int:
        return self.topics * self.channels * self.consumers


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of a fleet, by daemon."""

    lookupd_mb: float
    lookupd_cores: float
    lookup_kb: float
    nodes_mb: float
    registration_s: float
    """CPU until all nsqd are back in an nsqlookupd that was started again."""
    nsqd_mb: float
    nsqd_connections: float
    nsqd_cores: float
    admin_mb: float
    admin_cores: float
    """What asking everybody as often as wished would take; beyond its share it asks less often."""
    admin_age_s: float
    consumer_connections: int
    consumer_mb: float
    consumer_cores: float
    consumer_start_s: float
    starved_s: float
    """How long a message may wait because its nsqd has no turn: more connections than max_in_flight."""
    copy_mb_per_s: float
    same_node_id: float
    """Pairs of nsqd that have the same node id by default."""


def lookup_us(c: Constants, nsqds: float) -> float:
    """Return the CPU time of one answer to /lookup in microseconds."""
    return c.lookup_us + c.lookup_node_us * nsqds


def costs(fleet: Fleet, c: Constants) -> Costs:
    """Return the costs of a fleet as sums and products, so that each term can be checked by itself."""
    registrations = fleet.topics_of_node * (1 + fleet.channels)
    lookups = fleet.readers / LOOKUP_EVERY_S / fleet.lookupds
    pings = fleet.nsqds / PING_EVERY_S
    connections = fleet.topics_of_node * fleet.channels * fleet.consumers
    message_us = c.publish_us + fleet.channels * c.deliver_us + 2 * fleet.copies * c.copy_us
    rate = fleet.rate / fleet.nsqds
    channels_seen = fleet.topics_of_node * fleet.channels
    poll_us = c.poll_us + c.poll_channel_us * channels_seen
    wanted = fleet.nsqds * poll_us / 1e6 / fleet.poll_every_s
    return Costs(
        lookupd_mb=c.lookupd_base_mb
        + fleet.nsqds * (c.lookupd_node_kb * 1e3 + c.lookupd_registration_bytes * registrations) / MB,
        lookupd_cores=(lookups * lookup_us(c, fleet.nodes_of_topic) + pings * c.ping_us) / 1e6,
        lookup_kb=c.lookup_node_bytes * fleet.nodes_of_topic / 1e3,
        nodes_mb=fleet.nsqds * (c.lookup_node_bytes + c.nodes_topic_bytes * fleet.topics_of_node) / MB,
        registration_s=fleet.nsqds * registrations * c.register_us / 1e6,
        nsqd_mb=c.nsqd_base_mb
        + (fleet.topics_of_node * c.nsqd_topic_kb + connections * c.nsqd_connection_kb) * 1e3 / MB,
        nsqd_connections=connections,
        nsqd_cores=(
            c.nsqd_idle_us_per_s + rate * message_us + connections * c.heartbeat_us / HEARTBEAT_EVERY_S
        )
        / 1e6,
        admin_mb=c.admin_base_mb
        + fleet.nsqds * (c.admin_node_kb * 1e3 + c.admin_channel_bytes * channels_seen) / MB,
        admin_cores=wanted,
        admin_age_s=fleet.poll_every_s * max(1.0, wanted / ADMIN_SHARE),
        consumer_connections=fleet.nodes_of_topic,
        consumer_mb=(c.consumer_base_kb + fleet.nodes_of_topic * c.consumer_connection_kb) * 1e3 / MB,
        consumer_cores=fleet.nodes_of_topic
        * (c.consumer_heartbeat_us / HEARTBEAT_EVERY_S + c.consumer_lookup_node_us / LOOKUP_EVERY_S)
        / 1e6,
        consumer_start_s=(c.consumer_start_us + fleet.nodes_of_topic * c.consumer_connect_us) / 1e6,
        starved_s=LOW_RDY_IDLE_S * max(0.0, fleet.nodes_of_topic / fleet.max_in_flight - 1),
        copy_mb_per_s=fleet.copies * rate * (fleet.size + 40) / MB,
        same_node_id=fleet.nsqds * (fleet.nsqds - 1) / 2 / 1024,
    )


ROWS: Final = {
    "nsqlookupd, memory (MB)": "lookupd_mb",
    "nsqlookupd, cores for lookups and pings": "lookupd_cores",
    "an answer to /lookup (kB)": "lookup_kb",
    "an answer to /nodes (MB)": "nodes_mb",
    "CPU until all are registered again (s)": "registration_s",
    "an nsqd, memory (MB)": "nsqd_mb",
    "an nsqd, connections of consumers": "nsqd_connections",
    "an nsqd, cores": "nsqd_cores",
    "nsqadmin, memory (MB)": "admin_mb",
    "nsqadmin, cores it would take": "admin_cores",
    "nsqadmin, age of its figures (s)": "admin_age_s",
    "a consumer, connections": "consumer_connections",
    "a consumer, memory for them (MB)": "consumer_mb",
    "a consumer, cores when nothing comes": "consumer_cores",
    "a consumer, CPU to connect (s)": "consumer_start_s",
    "a message waits for its nsqd's turn (s)": "starved_s",
    "copies, MB/s to and from each nsqd": "copy_mb_per_s",
    "pairs with the same node id, by host name": "same_node_id",
}


def table(fleets: Sequence[Fleet], c: Constants) -> Iterator[str]:
    found = [costs(fleet, c) for fleet in fleets]
    yield "| nsqd | " + " | ".join(f"{fleet.nsqds:,}" for fleet in fleets) + " |"
    yield "|---|" + "--:|" * len(fleets)
    for title, name in ROWS.items():
        yield f"| {title} | " + " | ".join(_short(getattr(one, name)) for one in found) + " |"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet_model", description=__doc__)
    plain = Fleet(1)
    parser.add_argument("--nsqds", default="10,100,1000,10000")
    for name, kind in (
        ("topics", int),
        ("channels", int),
        ("consumers", int),
        ("spread", int),
        ("rate", float),
        ("size", int),
        ("copies", int),
        ("zones", int),
        ("lookupds", int),
        ("max-in-flight", int),
    ):
        default = getattr(plain, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=kind, default=default, help="default %(default)s")
    args = vars(parser.parse_args(argv))
    sizes = [int(size) for size in args.pop("nsqds").split(",")]
    fleets = [replace(plain, nsqds=size, **args) for size in sizes]
    for line in table(fleets, Constants()):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
