"""After an upgrade or rollback from any value set to any other, the cluster equals the values."""

import pytest

from tests.deploy.release import VALUE_SETS, render, values_of
from tests.deploy.server_side import apply, impossible

# The objects of every set get the same names, so that one set can follow another.
SAME_NAME = {"fullnameOverride": "demo"}

# Fields that Kubernetes does not allow to change in an existing object. The chart itself checks claims.
IMMUTABLE = {
    "StatefulSet": ("selector", "serviceName", "podManagementPolicy"),
    "Deployment": ("selector",),
    "Job": ("selector", "template"),
}


@pytest.fixture(scope="module")
def releases(chart):
    return {name: render(chart, values_of(name) | SAME_NAME) for name in VALUE_SETS}


def by_name(release):
    return {(each["kind"], each["metadata"]["name"]): each for each in release.objects}


def differences(one, other, path=""):
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from differences(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{path}.{index}")
    elif one != other:
        yield f"{path}: {one!r} instead of {other!r}"


def kept(first, second):
    """Yield differences between an upgrade from one release to another and a fresh install of the other."""
    before = by_name(first)
    for name, wanted in by_name(second).items():
        old = before.get(name)
        stored = apply(apply(None, old, None), wanted, old) if old else apply(None, wanted, None)
        yield from (f"{name}{each}" for each in differences(stored, apply(None, wanted, None)))
        yield from (f"{name}{each}" for each in impossible(stored))


@pytest.mark.parametrize("first", VALUE_SETS)
def test_upgrade_leaves_nothing_of_release_before(releases, first):
    for second in VALUE_SETS:
        assert list(kept(releases[first], releases[second])) == [], f"{first} then {second}"


@pytest.mark.parametrize("first", VALUE_SETS)
def test_upgrade_changes_nothing_that_kubernetes_does_not_let_change(releases, first):
    # The set "merged" changes podManagementPolicy, which needs a new StatefulSet.
    for second in set(VALUE_SETS) - {"merged"}:
        if first == "merged":
            continue
        before = by_name(releases[first])
        for name, wanted in by_name(releases[second]).items():
            for key in IMMUTABLE.get(name[0], ()) if name in before else ():
                assert before[name]["spec"][key] == wanted["spec"][key], (
                    f"{first} then {second}: {name} {key}"
                )


def test_disabled_account_is_no_longer_referenced(chart):
    with_account = render(chart, {})
    without = render(chart, {name: {"serviceAccount": {"create": False}} for name in ("nsqd", "nsqadmin")})

    assert list(kept(with_account, without)) == []
    for component in ("nsqd", "nsqadmin"):
        spec = without.pod(component)
        assert spec["serviceAccountName"] == "default"


def test_service_accounts_are_created_or_named_in_values(releases):
    for name, release in releases.items():
        made = {each["metadata"]["name"] for each in release.of_kind("ServiceAccount")}
        named = {
            values.get("serviceAccount", {}).get("name")
            for values in values_of(name).values()
            if isinstance(values, dict)
        }
        for spec in release.pod_specs():
            assert spec["serviceAccountName"] in made | named | {"default"}


@pytest.mark.parametrize(("first", "second"), [("OnDelete", "RollingUpdate"), ("RollingUpdate", "OnDelete")])
def test_kind_of_update_can_be_changed_back(chart, first, second):
    one, other = (render(chart, {"nsqd": {"updateStrategy": {"type": each}}}) for each in (first, second))

    assert list(kept(one, other)) == []
