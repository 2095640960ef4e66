"""Rendered objects are checked as a cluster's API server would check them, without a cluster."""

import re

import helm_python
import jsonschema
import pytest
from yamllint import linter
from yamllint.config import YamlLintConfig

from tests.deploy.release import CHART, NAMESPACE, VALUE_SETS, render, scalars, values_of
from tests.deploy.schemas import check

# The oldest release that the chart allows (Chart.yaml) and the newest whose schemas are installed.
KUBERNETES = ["1.30", "1.37"]

# Defined by the Prometheus operator, cert-manager and the Gateway API, not by Kubernetes.
CUSTOM_KINDS = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "Certificate", "HTTPRoute"}

QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")


@pytest.mark.parametrize("name", VALUE_SETS)
def test_chart_lints_without_warning(name):
    report = helm_python.lint(CHART, values_of(name), strict=True)

    assert report["errors"] == []
    assert [message for message in report["messages"] if message["severity"] > 1] == []


@pytest.mark.parametrize("version", KUBERNETES)
def test_objects_are_valid_to_strict_schema(release, version):
    for thing in release.objects:
        if thing["kind"] not in CUSTOM_KINDS:
            check(thing, version)


def test_oldest_tested_kubernetes_is_oldest_chart_allows(chart):
    assert chart.metadata["kubeVersion"] == f">={KUBERNETES[0]}.0-0"


def test_release_before_oldest_does_not_know_sleep_in_hooks(chart):
    thing = render(chart, {}).workload("nsqlookupd")

    with pytest.raises(jsonschema.ValidationError, match="sleep"):
        check(thing, "1.28")


def test_manifests_are_tidy_yaml_without_duplicate_keys(release):
    config = YamlLintConfig(
        "{rules: {key-duplicates: enable, trailing-spaces: enable, colons: enable, commas: enable,"
        " braces: enable, indentation: {indent-sequences: whatever},"
        " empty-lines: {max: 0, max-start: 0, max-end: 1}}}"
    )

    for path, text in release.manifests.items():
        assert [f"{path}: {problem}" for problem in linter.run(text, config)] == []


def test_quantities_are_numbers_with_unit_kubernetes_knows(release):
    for thing in release.objects:
        for path, value in scalars(thing):
            if re.search(r"\.(requests|limits)\.\w+$|\.sizeLimit$", path):
                assert QUANTITY.fullmatch(str(value)), f"{thing['kind']} {path}: {value}"


def test_objects_have_no_empty_fields(release):
    for thing in release.objects:
        # The storage class "" means no class, and the API group "" is that of Pods and Services.
        meant = re.compile(r"storageClassName$|^rules\.\d+\.apiGroups\.\d+$")
        empty = [
            path
            for path, value in scalars(thing)
            if value is None or (value == "" and not meant.search(path))
        ]

        assert empty == [], f"{thing['kind']}/{thing['metadata']['name']}"


def test_large_numbers_stay_numbers(chart):
    lines = render(chart, {"nsqd": {"config": {"max-bytes-per-file": 10000000}}}).command_line("nsqd")

    assert "--max-bytes-per-file=10000000" in lines


def test_names_are_unique_per_kind_and_not_longer_than_allowed(chart):
    with_long_name = chart.render(values_of("default"), name="a" * 53, namespace=NAMESPACE)
    names = re.findall(
        r"^kind: (\w+)\nmetadata:\n  name: (\S+)$", "\n".join(with_long_name.values()), re.MULTILINE
    )

    assert len(names) == len(set(names)) >= 10
    # 52, because the pods of a StatefulSet have its name and a hash in a label of at most 63 characters.
    assert [name for kind, name in names if len(name) > (52 if kind == "StatefulSet" else 63)] == []


def test_notes_name_addresses_that_exist(release):
    notes = release.sources["nsq/templates/NOTES.txt"]
    services = {thing["metadata"]["name"] for thing in release.of_kind("Service")}
    named = set(re.findall(rf"([\w-]+)\.{NAMESPACE}\.svc", notes)) | set(re.findall(r"service/(\S+)", notes))

    assert len(named) >= 2
    assert named <= services
