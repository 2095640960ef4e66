"""Packages, programs, chart and metrics all have the version of nsqcore/version.py."""

import importlib
import re
import tomllib
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client.registry import Collector

from nsqcore.http.metrics import Metrics
from nsqcore.version import VERSION, banner, build

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# The answer to --version that the test suites of clients parse.
PARSED_BY_CLIENTS = re.compile(r"nsqd v\d+\.\d+\.\d+ \(built w/[a-z0-9.-]+\)")


def said_by(script, capsys):
    module, function = PROJECT["scripts"][script].split(":")
    with pytest.raises(SystemExit) as ended:
        getattr(importlib.import_module(module), function)(["--version"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_distribution_has_version_that_programs_print():
    assert PROJECT["version"] == VERSION


def test_chart_installs_image_of_this_version():
    chart = (ROOT / "deploy" / "helm" / "nsq" / "Chart.yaml").read_text(encoding="utf-8")

    assert f'appVersion: "{VERSION}"' in chart


@pytest.mark.parametrize("script", sorted(set(PROJECT["scripts"]) - {"nsqd", "nsqadmin"}))
def test_scripts_print_their_version(script, capsys):
    assert said_by(script, capsys) == f"{banner(script)}\n"


def test_test_suites_of_clients_can_read_version_of_nsqd(capsys):
    said = said_by("nsqd", capsys)

    assert PARSED_BY_CLIENTS.fullmatch(said.rstrip("\n"))
    assert f"nsq-cluster-{VERSION}" in said


def test_metrics_say_which_build_answers():
    class NoFigures(Collector):
        def collect(self):
            return []

    reply = Metrics(NoFigures(), "prog").reply()

    assert isinstance(reply, web.Response)
    labels = f'build="{build()}",nsq="1.3.0",version="{VERSION}"'
    assert f"prog_build_info{{{labels}}} 1.0" in reply.body.decode()
