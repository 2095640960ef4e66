#!/usr/bin/env python3
"""Write the Grafana dashboards of the chart from the panels listed here; --check only compares."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parent.parent / "deploy" / "helm" / "nsq" / "files" / "dashboards"

# The selector made of the variables at the top of each dashboard.
BROKERS: Final = 'namespace="$namespace",pod=~"$pod"'
LOOKUPS: Final = 'namespace="$namespace"'
TOPIC: Final = f'{BROKERS},topic=~"$topic"'
VOLUMES: Final = 'namespace="$namespace",persistentvolumeclaim=~"data-($pod)"'

PANEL_HEIGHT: Final = 8
STAT_HEIGHT: Final = 4
WIDTH: Final = 24


@dataclass(frozen=True)
class Panel:
    title: str
    queries: Sequence[tuple[str, str]]
    """Pairs of a query and the name of what it draws."""
    unit: str = "short"
    kind: str = "timeseries"
    text: str = ""
    width: int = 12
    red_from: float | None = None


def stat(title: str, query: str, text: str, *, unit: str = "short", red_from: float | None = None) -> Panel:
    return Panel(title, [(query, "")], unit, "stat", text, 4, red_from)


def by(labels: str, metric: str, where: str = BROKERS) -> str:
    return f"sum by ({labels}) ({metric}{{{where}}})"


def rate(labels: str, metric: str, where: str = BROKERS) -> str:
    return f"sum by ({labels}) (rate({metric}{{{where}}}[$__rate_interval]))"


CLUSTER: Final = [
    stat("Brokers", f"count(nsqd_healthy{{{BROKERS}}})", "nsqd that can be scraped"),
    stat("Unhealthy", f"count(nsqd_healthy{{{BROKERS}}} == 0) or vector(0)", "disks that refuse", red_from=1),
    stat("Draining", f"sum(nsqd_draining{{{BROKERS}}})", "brokers that refuse publishes and empty"),
    stat("nsqlookupd ready", f"sum(nsqlookupd_ready{{{LOOKUPS}}})", "those that know every broker"),
    stat("Messages waiting", f"sum(nsqd_channel_depth{{{BROKERS}}})", "in all channels"),
    stat(
        "Messages lost",
        f"sum(increase(nsqd_channel_lost_total{{{BROKERS}}}[$__range]))",
        "pending messages that can no longer be read, in the time shown",
        red_from=1,
    ),
    Panel("Published", [(rate("pod", "nsqd_topic_messages_total"), "{{pod}}")], "wps"),
    Panel("Published, bytes", [(rate("pod", "nsqd_topic_message_bytes_total"), "{{pod}}")], "Bps"),
    Panel(
        "Deepest channels",
        [(f"topk(10, {by('topic, channel', 'nsqd_channel_depth')})", "{{topic}}/{{channel}}")],
        text="messages that wait, over all brokers",
    ),
    Panel(
        "Requeued and timed out",
        [
            (rate("topic, channel", "nsqd_channel_requeued_total"), "{{topic}}/{{channel}} requeued"),
            (rate("topic, channel", "nsqd_channel_timed_out_total"), "{{topic}}/{{channel}} timed out"),
        ],
        "wps",
    ),
    Panel("Connections", [(f"nsqd_connections{{{BROKERS}}}", "{{pod}}")]),
    Panel(
        "Volumes, part in use",
        [
            (
                (
                    f"1 - kubelet_volume_stats_available_bytes{{{VOLUMES}}}"
                    f" / kubelet_volume_stats_capacity_bytes{{{VOLUMES}}}"
                ),
                "{{persistentvolumeclaim}}",
            )
        ],
        "percentunit",
    ),
    Panel(
        "Discovery",
        [
            (f"sum by (pod) (nsqlookupd_peers{{{LOOKUPS}}})", "{{pod}} brokers"),
            (f"sum by (pod) (nsqlookupd_unavailable_peers{{{LOOKUPS}}})", "{{pod}} that take no publishes"),
        ],
    ),
    Panel(
        "Registrations",
        [
            (f"sum by (pod) (nsqlookupd_registrations{{{LOOKUPS}}})", "{{pod}}"),
            (f"sum by (pod) (nsqlookupd_tcp_connections{{{LOOKUPS}}})", "{{pod}} connections"),
        ],
    ),
]

TOPICS: Final = [
    stat("Published", f"sum(rate(nsqd_topic_messages_total{{{TOPIC}}}[$__rate_interval]))", "", unit="wps"),
    stat(
        "Without a channel", f"sum(nsqd_topic_depth{{{TOPIC}}})", "wait for a first channel or for unpausing"
    ),
    stat("Waiting", f"sum(nsqd_channel_depth{{{TOPIC}}})", "in all channels of the topic"),
    stat("In flight", f"sum(nsqd_channel_in_flight{{{TOPIC}}})", "delivered, not answered"),
    stat("Deferred", f"sum(nsqd_channel_deferred{{{TOPIC}}})", "held back until their time"),
    stat("On disk", f"sum(nsqd_topic_log_bytes{{{TOPIC}}})", "message data", unit="bytes"),
    Panel("Published, by broker", [(rate("pod", "nsqd_topic_messages_total", TOPIC), "{{pod}}")], "wps"),
    Panel("Depth, by channel", [(by("channel", "nsqd_channel_depth", TOPIC), "{{channel}}")]),
    Panel(
        "Came to the channel, and was finished",
        [
            (rate("channel", "nsqd_channel_messages_total", TOPIC), "{{channel}} came"),
            (
                (
                    f"{rate('channel', 'nsqd_channel_messages_total', TOPIC)}"
                    f" - sum by (channel) (deriv(nsqd_channel_depth{{{TOPIC}}}[$__rate_interval]))"
                ),
                "{{channel}} left the queue",
            ),
        ],
        "wps",
    ),
    Panel("In flight", [(by("channel", "nsqd_channel_in_flight", TOPIC), "{{channel}}")]),
    Panel(
        "Age of the oldest message",
        [(f"max by (channel) (nsqd_channel_oldest_message_age_seconds{{{TOPIC}}})", "{{channel}}")],
        "s",
    ),
    Panel(
        "Published again within the window of dedup ids, not stored",
        [(rate("pod", "nsqd_topic_repeated_total", TOPIC), "{{pod}}")],
        "wps",
    ),
    Panel("Consumers", [(by("channel", "nsqd_channel_consumers", TOPIC), "{{channel}}")]),
    Panel(
        "What went wrong",
        [
            (rate("channel", "nsqd_channel_requeued_total", TOPIC), "{{channel}} requeued"),
            (rate("channel", "nsqd_channel_timed_out_total", TOPIC), "{{channel}} timed out"),
            (
                rate("channel", "nsqd_channel_returned_total", TOPIC),
                "{{channel}} given back by a leaving consumer",
            ),
            (rate("channel", "nsqd_channel_lost_total", TOPIC), "{{channel}} lost"),
        ],
        "wps",
    ),
    Panel(
        "Paused",
        [
            (f"max by (topic) (nsqd_topic_paused{{{TOPIC}}})", "{{topic}}"),
            (f"max by (topic, channel) (nsqd_channel_paused{{{TOPIC}}})", "{{topic}}/{{channel}}"),
        ],
    ),
]

NODE: Final = [
    stat("Healthy", f"min(nsqd_healthy{{{BROKERS}}})", "1 while the disk takes writes"),
    stat("Draining", f"max(nsqd_draining{{{BROKERS}}})", "1 while publishes are refused"),
    stat("Left to drain", f"sum(nsqd_drain_remaining{{{BROKERS}}})", "messages a drain still waits for"),
    stat("nsqlookupd", f"sum(nsqd_lookupd_connected{{{BROKERS}}})", "it is registered with"),
    stat(
        "Topics that cannot be read or written",
        f"count(nsqd_topic_readable{{{BROKERS}}} == 0 or nsqd_topic_writable{{{BROKERS}}} == 0) or vector(0)",
        "",
        red_from=1,
    ),
    stat(
        "Checkpoint",
        f"max(nsqd_checkpoint_lag_seconds{{{BROKERS}}})",
        "for how long what was finished could come back",
        unit="s",
        red_from=60,
    ),
    Panel(
        "fsync, time for one",
        [
            (
                f"{rate('pod', 'nsqd_fsync_seconds_total')} / {rate('pod', 'nsqd_fsyncs_total')}",
                "{{pod}}",
            )
        ],
        "s",
    ),
    Panel("fsync, how many", [(rate("pod", "nsqd_fsyncs_total"), "{{pod}}")], "ops"),
    Panel("Published", [(rate("pod", "nsqd_topic_messages_total"), "{{pod}}")], "wps"),
    Panel("Data on disk", [(f"topk(10, {by('topic', 'nsqd_topic_log_bytes')})", "{{topic}}")], "bytes"),
    Panel(
        "Connections",
        [
            (f"nsqd_connections{{{BROKERS}}}", "{{pod}}"),
            (rate("pod", "nsqd_connections_accepted_total"), "{{pod}} new, each second"),
        ],
    ),
    Panel(
        "Free part of the disk",
        [(f"nsqd_disk_free_bytes{{{BROKERS}}} / nsqd_disk_size_bytes{{{BROKERS}}}", "{{pod}}")],
        "percentunit",
    ),
    Panel("Refuses publishes: the disk is below its watermark", [(f"nsqd_disk_low{{{BROKERS}}}", "{{pod}}")]),
    Panel(
        "Replication",
        [
            (f"nsqd_under_replicated_topics{{{BROKERS}}}", "{{pod}} under-replicated topics"),
            (f"nsqd_primaries_connected{{{BROKERS}}}", "{{pod}} primaries connected"),
            (f"nsqd_replica_connected{{{BROKERS}}}", "{{pod}} connected to {{replica}}"),
            (f"nsqd_replica_stalled{{{BROKERS}}}", "{{pod}} stalled replica {{replica}}"),
            (rate("pod", "nsqd_replication_refused_total"), "{{pod}} refused connections, each second"),
        ],
    ),
    Panel("Replica lag", [(f"nsqd_replica_lag_bytes{{{BROKERS}}}", "{{pod}} to {{replica}}")], "bytes"),
    Panel("Replica lag time", [(f"nsqd_replica_lag_seconds{{{BROKERS}}}", "{{pod}} to {{replica}}")], "s"),
    Panel(
        "Replicated topics",
        [
            (f"nsqd_replica_in_sync_topics{{{BROKERS}}}", "{{pod}} in sync at {{replica}}"),
            (f"nsqd_replica_caught_up_topics{{{BROKERS}}}", "{{pod}} caught up at {{replica}}"),
        ],
    ),
    Panel(
        "Failover: promoted copies",
        [
            (f"nsqd_owned_topics{{{BROKERS}}}", "{{pod}} topics"),
            (f"nsqd_owned_pending_messages{{{BROKERS}}}", "{{pod}} pending messages"),
            (f"nsqd_owned_unreadable_topics{{{BROKERS}}}", "{{pod}} unreadable topics"),
            (f"nsqd_yielded_messages{{{BROKERS}}}", "{{pod}} yielded messages"),
            (f"increase(nsqd_failovers_total{{{BROKERS}}}[$__rate_interval])", "{{pod}} failovers"),
        ],
    ),
    Panel("Registered with", [(f"nsqd_lookupd_connected{{{BROKERS}}}", "{{pod}} at {{address}}")]),
    Panel(
        "Volume",
        [
            (f"kubelet_volume_stats_available_bytes{{{VOLUMES}}}", "{{persistentvolumeclaim}} free"),
            (f"kubelet_volume_stats_capacity_bytes{{{VOLUMES}}}", "{{persistentvolumeclaim}} size"),
        ],
        "bytes",
    ),
]

DASHBOARDS: Final = {
    "cluster": ("NSQ cluster", CLUSTER, ("namespace", "pod")),
    "topic": ("NSQ topic", TOPICS, ("namespace", "pod", "topic")),
    "node": ("NSQ node", NODE, ("namespace", "pod")),
}

VARIABLES: Final = {
    "namespace": "label_values(nsqd_healthy, namespace)",
    "pod": 'label_values(nsqd_healthy{namespace="$namespace"}, pod)',
    "topic": 'label_values(nsqd_topic_depth{namespace="$namespace"}, topic)',
}

SOURCE: Final = {"type": "prometheus", "uid": "$datasource"}


def variable(name: str) -> dict[str, Any]:
    several = name != "namespace"
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": VARIABLES[name], "refId": name},
        "definition": VARIABLES[name],
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": several,
        # "All" may match pods of other programs, because those have no such metrics.
        "allValue": ".*" if several else None,
        "current": {"selected": True, "text": "All", "value": "$__all"} if several else {},
    }


def panel(number: int, given: Panel, x: int, y: int, height: int) -> dict[str, Any]:
    targets = [
        {"datasource": SOURCE, "expr": query, "legendFormat": name or "__auto", "refId": chr(ord("A") + i)}
        for i, (query, name) in enumerate(given.queries)
    ]
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if given.red_from is not None:
        steps.append({"color": "red", "value": given.red_from})
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi"},
    }
    if given.kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    return {
        "id": number,
        "title": given.title,
        "description": given.text,
        "type": given.kind,
        "datasource": SOURCE,
        "gridPos": {"h": height, "w": given.width, "x": x, "y": y},
        "fieldConfig": {
            "defaults": {"unit": given.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "options": options,
        "targets": targets,
    }


def dashboard(name: str) -> str:
    """Return one dashboard as JSON that Grafana reads."""
    title, panels, variables = DASHBOARDS[name]
    placed = []
    x = y = height = 0
    for number, given in enumerate(panels, 1):
        if x + given.width > WIDTH:
            x, y = 0, y + height
        height = STAT_HEIGHT if given.kind == "stat" else PANEL_HEIGHT
        placed.append(panel(number, given, x, y, height))
        x += given.width
    source = {"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus"}
    links = [{"type": "dashboards", "tags": ["nsq"], "title": "NSQ", "asDropdown": True, "includeVars": True}]
    found = {
        "uid": f"nsq-{name}",
        "title": title,
        "tags": ["nsq"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "links": links,
        "templating": {"list": [source, *map(variable, variables)]},
        "panels": placed,
    }
    return json.dumps(found, indent=1) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("; ", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    if not parser.parse_args().check:
        for name in DASHBOARDS:
            (FOLDER / f"{name}.json").write_text(dashboard(name))
        return 0
    old = [name for name in DASHBOARDS if (FOLDER / f"{name}.json").read_text() != dashboard(name)]
    if old:
        print(f"out of date: {', '.join(old)}; run scripts/dashboards.py", file=sys.stderr)
    return int(bool(old))


if __name__ == "__main__":
    sys.exit(main())
