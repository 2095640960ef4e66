"""A small model of server-side apply: the result of one apply after another at an API server.

The chart's manager owns the leaves that it applied. A leaf that it no longer applies is removed; a leaf that
the server filled in has no owner, so it stays. Because of that an upgrade can end with something that no
values ask for.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

Object = dict[str, Any]

# Lists whose items are merged by these keys; all other lists are replaced as a whole.
KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "ports": ("port", "containerPort"),  # the protocol is part of the key, but is TCP everywhere
}

# Groups of fields: an object may have only one field of each.
ONE_OF = (
    {"exec", "httpGet", "tcpSocket", "sleep", "grpc"},
    {"emptyDir", "secret", "configMap", "projected", "persistentVolumeClaim"},
)


def apply(there: Object | None, wanted: Object, before: Object | None) -> Object:
    """Return the stored object after *wanted* was applied over *there*, where *before* had been applied."""
    stored = _without(deepcopy(there), before, wanted) if there is not None and before is not None else {}
    result = _merge(stored or {}, wanted)
    _fill(result)
    return result


def _key(name: str, item: Object) -> tuple[Any, ...]:
    return tuple(item.get(key) for key in KEYS[name])


def _keyed(name: str, value: Any) -> bool:
    return name in KEYS and isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _without(there: Any, before: Any, wanted: Any, name: str = "") -> Any:
    """Remove leaves that were applied before and are no longer wanted, and parts that are empty then."""
    if isinstance(there, dict) and isinstance(before, dict):
        kept = {}
        wants = wanted if isinstance(wanted, dict) else {}
        for key, value in there.items():
            left = value if key not in before else _without(value, before[key], wants.get(key), key)
            if left is not None:
                kept[key] = left
        return kept or None
    if _keyed(name, there) and _keyed(name, before):
        old = {_key(name, each): each for each in before}
        new = {_key(name, each): each for each in wanted or []}
        # An item that is no longer wanted is removed together with everything that the server filled in.
        gone = old.keys() - new.keys()
        items = [
            _without(each, old.get(_key(name, each)), new.get(_key(name, each)))
            if _key(name, each) in old
            else each
            for each in there
            if _key(name, each) not in gone
        ]
        return [each for each in items if each is not None] or None
    return None if wanted is None else there


def _merge(there: Any, wanted: Any, name: str = "") -> Any:
    if isinstance(there, dict) and isinstance(wanted, dict):
        return there | {key: _merge(there.get(key), value, key) for key, value in wanted.items()}
    if _keyed(name, wanted) and _keyed(name, there or []):
        old = {_key(name, each): each for each in there or []}
        merged = [_merge(old.pop(_key(name, each), {}), each) for each in wanted]
        return merged + list(old.values())
    return deepcopy(wanted)


def _fill(thing: Object) -> None:
    """Fill in the defaults of the API server for the fields that this chart leaves out."""
    spec = thing.get("spec", {})
    if thing["kind"] == "Service":
        if spec.setdefault("type", "ClusterIP") != "ClusterIP":
            spec.setdefault("externalTrafficPolicy", "Cluster")
        spec.setdefault("sessionAffinity", "None")
        spec.setdefault("internalTrafficPolicy", "Cluster")
        _depend_on_type(spec)
    if thing["kind"] == "Deployment":
        strategy = spec.setdefault("strategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("progressDeadlineSeconds", 600)
    if thing["kind"] == "StatefulSet":
        strategy = spec.setdefault("updateStrategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        spec.setdefault("podManagementPolicy", "OrderedReady")
    for pod in pods(thing):
        _fill_pod(pod)


def _depend_on_type(spec: Object) -> None:
    """Remove the fields of other types of Service after the type was changed."""
    if spec["type"] == "ClusterIP":
        spec.pop("externalTrafficPolicy", None)
    for port in spec["ports"]:
        port.setdefault("protocol", "TCP")
        if spec["type"] == "ClusterIP":
            port.pop("nodePort", None)
        else:
            port.setdefault("nodePort", "chosen by the cluster")


def _fill_pod(pod: Object) -> None:
    # The field and its deprecated alias are always equal: if one is missing, the server copies the other.
    account = pod.get("serviceAccountName") or pod.get("serviceAccount")
    if account:
        pod["serviceAccountName"] = pod["serviceAccount"] = account
    for volume in pod.get("volumes", []):
        for kind in ("secret", "projected"):
            if kind in volume:
                volume[kind].setdefault("defaultMode", 420)
    for container in pod.get("initContainers", []) + pod["containers"]:
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container.get(kind, {})
            if probe:
                for key, value in (("periodSeconds", 10), ("timeoutSeconds", 1), ("failureThreshold", 3)):
                    probe.setdefault(key, value)
            if "httpGet" in probe:
                probe["httpGet"].setdefault("scheme", "HTTP")


def pods(thing: Object) -> Iterator[Object]:
    """Yield the pod specification within an object, if it has one."""
    if thing["kind"] == "Pod":
        yield thing["spec"]
    elif thing["kind"] in {"Deployment", "StatefulSet"}:
        yield thing["spec"]["template"]["spec"]
    elif thing["kind"] == "CronJob":
        yield thing["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def impossible(thing: Any, path: str = "") -> Iterator[str]:
    """Yield the places that the API server refuses: two fields of a group of which only one is allowed."""
    if isinstance(thing, dict):
        for group in ONE_OF:
            if len(group & thing.keys()) > 1 and "name" not in group & thing.keys():
                yield f"{path}: {sorted(group & thing.keys())}"
        update = thing.get("strategy") or thing.get("updateStrategy") or {}
        if "rollingUpdate" in update and update.get("type") != "RollingUpdate":
            yield f"{path}: rollingUpdate with {update.get('type')}"
        for key, value in thing.items():
            yield from impossible(value, f"{path}.{key}")
    elif isinstance(thing, list):
        for index, value in enumerate(thing):
            yield from impossible(value, f"{path}.{index}")
