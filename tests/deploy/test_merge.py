"""Every object takes changes that the chart has no value for."""

import json

import pytest
from helm_python import HelmError

from tests.deploy.release import CHART, VALUE_SETS, render, values_of

SCHEMA = json.loads((CHART / "values.schema.json").read_text())

# key -> the kind of object that it changes, where its name does not say so
KINDS = {
    "httpService": "Service",
    "headlessService": "Service",
    "outsideService": "Service",
    "route": "HTTPRoute",
    "pod": "Pod",
    "dashboard": "ConfigMap",
    "rules": "PrometheusRule",
    "monitor": "PodMonitor",
}


def merges():
    """Yield every component with every key of its merge."""
    for component, schema in SCHEMA["properties"].items():
        for key in schema.get("properties", {}).get("merge", {}).get("properties", {}):
            yield component, key
    yield "tls.certManager", "certificate"


def everything():
    """Values with which every object of the chart is rendered."""
    values: dict = {}

    def add(target, more):
        for key, value in more.items():
            if isinstance(value, dict) and isinstance(target.get(key), dict):
                add(target[key], value)
            else:
                target[key] = value

    for name in ("signed-in", "monitored", "outside", "balanced", "archive"):
        add(values, json.loads(json.dumps(values_of(name))))
    add(
        values,
        {
            "nsqd": {"config": {"auth-http-address": ["auth:80"]}, "podDisruptionBudget": {"enabled": True}},
            "networkPolicy": {"monitoring": [{"podSelector": {}}]},
        },
    )
    return values


@pytest.fixture(scope="module")
def before(chart):
    return render(chart, everything())


@pytest.mark.parametrize(("component", "key"), list(merges()))
def test_change_reaches_its_object_and_no_other(chart, before, component, key):
    values = everything()
    place = values
    for part in component.split("."):
        place = place.setdefault(part, {})
    place.setdefault("merge", {})[key] = {"metadata": {"annotations": {"changed": "yes"}}}
    after = render(chart, values)

    changed = [
        thing for thing in after.objects if thing["metadata"].get("annotations", {}).get("changed") == "yes"
    ]
    kind = KINDS.get(key, key[0].upper() + key[1:])
    assert changed
    assert {thing["kind"] for thing in changed} == {kind}
    assert len(
        [one for one, other in zip(before.objects, after.objects, strict=True) if one != other]
    ) == len(changed)


def test_objects_of_chart_can_be_changed(chart):
    values = everything()
    for component, key in merges():
        place = values
        for part in component.split("."):
            place = place.setdefault(part, {})
        place.setdefault("merge", {})[key] = {"metadata": {"annotations": {"changed": "yes"}}}

    unchanged = [
        f"{thing['kind']}/{thing['metadata']['name']}"
        for thing in render(chart, values).objects
        if thing["metadata"].get("annotations", {}).get("changed") != "yes"
    ]
    assert unchanged == []


def test_containers_are_merged_by_their_name_and_other_things_stay(chart):
    pod = render(chart, values_of("merged")).pod()
    plain = render(chart, {}).pod()

    first, second = pod["containers"]
    assert first == plain["containers"][0] | {"stdin": True}
    assert second == {"name": "sidecar", "image": "example.com/sidecar:1"}
    assert pod == plain | {"containers": pod["containers"], "hostNetwork": False}


def test_null_takes_key_away_and_plain_list_is_replaced(chart):
    change = {"spec": {"unhealthyPodEvictionPolicy": None}}
    budget = render(chart, {"nsqd": {"merge": {"podDisruptionBudget": change}}}).named(
        "PodDisruptionBudget", "demo-nsq-nsqd"
    )
    policy = {"spec": {"policyTypes": ["Ingress", "Egress"]}}
    values = {"networkPolicy": {"enabled": True}, "nsqd": {"merge": {"networkPolicy": policy}}}

    assert "unhealthyPodEvictionPolicy" not in budget["spec"]
    assert render(chart, values).named("NetworkPolicy", "demo-nsq-nsqd")["spec"]["policyTypes"] == [
        "Ingress",
        "Egress",
    ]


def test_numbers_stay_numbers_when_something_is_merged(chart):
    change = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 10000000}}}}
    thing = render(chart, {"nsqd": {"merge": {"statefulSet": change}}}).workload("nsqd")

    assert thing["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 10000000
    assert thing["spec"]["replicas"] == 2


def test_object_that_component_does_not_have_is_refused(chart):
    with pytest.raises(HelmError, match="/nsqlookupd/merge"):
        render(chart, {"nsqlookupd": {"merge": {"httpService": {}}}})


@pytest.mark.parametrize("name", VALUE_SETS)
def test_unmerged_objects_keep_their_comments(chart, name):
    release = render(chart, values_of(name))

    changed = name == "merged"
    assert (
        "# Brokers do not depend on each other" in release.sources["nsq/templates/nsqd/statefulset.yaml"]
    ) is not changed
