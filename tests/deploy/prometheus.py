"""Alerts that Prometheus' own tool evaluates over the metrics of real daemons, minute by minute."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from tests.deploy.release import NAMESPACE, Release
from tests.support.processes import Daemon

SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")

# The value at a moment when the daemon could not be scraped.
GONE: Final = "_"

Snapshot = dict[str, str]
"""Series -> its value at one moment."""
Timeline = Sequence[Snapshot | None]
"""A snapshot for each minute; None where no daemon answered."""


def promtool() -> str:
    found = shutil.which("promtool")
    assert found, "promtool is missing: it is in Debian's package prometheus, and ./test installs it"
    return found


def snapshot(daemon: Daemon, pod: str) -> Snapshot:
    """What Prometheus would store of one scrape, with the labels that the monitors of the chart add."""
    status, text = daemon.request("GET", "/metrics")
    assert status == 200
    target = f'namespace="{NAMESPACE}",pod="{pod}"'
    found = {}
    for line in text.decode().splitlines():
        sample = SAMPLE.match(line)
        if sample:
            name, labels, value = sample.groups()
            found[f"{name}{{{target}{',' + labels if labels else ''}}}"] = value
    return found


def series(timelines: Iterable[Timeline]) -> list[dict[str, str]]:
    """Turn snapshots into the form that promtool reads."""
    found = []
    for timeline in timelines:
        names = {name for moment in timeline if moment for name in moment}
        found += [
            {"series": name, "values": " ".join((moment or {}).get(name, GONE) for moment in timeline)}
            for name in sorted(names)
        ]
    return found


def rules_of(release: Release) -> str:
    (rules,) = release.of_kind("PrometheusRule")
    return yaml.safe_dump(rules["spec"])


def firing(
    folder: Path, rules: str, timelines: Iterable[Timeline], minute: int, alerts: Mapping[str, int]
) -> str:
    """The difference from exactly *alerts* firing after *minute* minutes; empty when there is none."""
    (folder / "rules.yaml").write_text(rules)
    expected = [{"labels": f'{{alertname="{name}"}}', "value": count} for name, count in alerts.items()]
    question = {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{minute}m",
        "exp_samples": expected,
    }
    test = {"interval": "1m", "input_series": series(timelines), "promql_expr_test": [question]}
    given = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "test.yaml").write_text(yaml.safe_dump(given))
    done = subprocess.run(
        [promtool(), "test", "rules", "test.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def problems(folder: Path, rules: str) -> str:
    """The problems that promtool finds in rules; empty if there are none."""
    (folder / "rules.yaml").write_text(rules)
    done = subprocess.run(
        [promtool(), "check", "rules", "rules.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


METRIC: Final = re.compile(r"\b(?:nsqd|nsqlookupd|nsqadmin|kube|kubelet)_[a-z_]+")


def metrics_in(expression: str) -> set[str]:
    """The metrics that a query reads. Text in quotes is left out, because it is a label's value."""
    return set(METRIC.findall(re.sub(r'"[^"]*"', "", expression)))
