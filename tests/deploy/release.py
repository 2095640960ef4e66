"""The chart rendered for one set of values, as a list of objects that tests can query."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml
from helm_python import Chart

CHART: Final = Path(__file__).parents[2] / "deploy" / "helm" / "nsq"
VALUE_SETS: Final = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*.yaml"))
NAME: Final = "demo"
NAMESPACE: Final = "messaging"

Object = dict[str, Any]

# The loader in C, which not every PyYAML has, gives the same result ten times as fast.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def documents(text: str) -> list[Any]:
    """Return the documents of a YAML file in their order."""
    return list(yaml.load_all(text, _LOADER))


def values_of(name: str) -> Object:
    """Return the values of ``ci/NAME-values.yaml``."""
    found = documents((CHART / "ci" / f"{name}-values.yaml").read_text())
    return found[0] if found else {}


@dataclass(frozen=True)
class Release:
    """What ``helm install`` would send to the cluster."""

    sources: dict[str, str]
    """Template -> its rendered text."""
    values: Object
    """The values after the chart's defaults were merged in."""

    @property
    def manifests(self) -> dict[str, str]:
        return {path: text for path, text in self.sources.items() if path.endswith(".yaml") and text.strip()}

    @cached_property
    def objects(self) -> list[Object]:
        found = [thing for text in self.manifests.values() for thing in documents(text)]
        return [thing for thing in found if thing is not None]

    def of_kind(self, kind: str) -> list[Object]:
        return [thing for thing in self.objects if thing["kind"] == kind]

    def named(self, kind: str, name: str) -> Object:
        found = [thing for thing in self.of_kind(kind) if thing["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} objects {kind}/{name}"
        return found[0]

    def workload(self, component: str) -> Object:
        """Return the StatefulSet or Deployment of a component."""
        found = [
            thing
            for thing in self.of_kind("StatefulSet") + self.of_kind("Deployment")
            if thing["metadata"]["labels"]["app.kubernetes.io/component"] == component
        ]
        assert len(found) == 1, f"{len(found)} workloads of {component}"
        return found[0]

    def pod(self, component: str = "nsqd") -> Object:
        """Return the specification of the pods of a component."""
        spec: Object = self.workload(component)["spec"]["template"]["spec"]
        return spec

    def container(self, component: str = "nsqd") -> Object:
        """Return the first container of a component."""
        container: Object = self.pod(component)["containers"][0]
        return container

    def stop_command(self) -> list[str]:
        """Return the command that runs before a broker is stopped."""
        command: list[str] = self.container()["lifecycle"]["preStop"]["exec"]["command"]
        return command

    def workloads(self) -> list[Object]:
        return self.of_kind("StatefulSet") + self.of_kind("Deployment")

    def pod_specs(self) -> list[Object]:
        """Return the pod specification of every workload, of every CronJob and of the helm test."""
        jobs = [thing["spec"]["jobTemplate"] for thing in self.of_kind("CronJob")]
        owners = [*self.workloads(), *jobs]
        return [thing["spec"]["template"]["spec"] for thing in owners] + [
            thing["spec"] for thing in self.of_kind("Pod")
        ]

    def pods_selected(self, selector: Object) -> list[Object]:
        """Return the workloads whose pods carry all labels of a selector."""
        return [
            thing
            for thing in self.workloads()
            if selector.items() <= thing["spec"]["template"]["metadata"]["labels"].items()
        ]

    def pod_names(self, component: str) -> list[str]:
        """Return the full DNS name of every pod of a StatefulSet."""
        thing = self.workload(component)
        name, service = thing["metadata"]["name"], thing["spec"]["serviceName"]
        domain = f"{NAMESPACE}.svc.{self.values['clusterDomain']}"
        return [f"{name}-{index}.{service}.{domain}" for index in range(thing["spec"]["replicas"])]

    def environment(self, component: str, index: int = 0) -> dict[str, str]:
        """Return the variables that one pod has from its own fields."""
        thing = self.workload(component)
        container = self.container(component)
        pod = {
            "metadata.name": f"{thing['metadata']['name']}-{index}",
            "metadata.namespace": NAMESPACE,
            "metadata.labels['apps.kubernetes.io/pod-index']": str(index),
        }
        return {
            variable["name"]: pod[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            for variable in container.get("env", [])
            if "valueFrom" in variable
        }

    def command_line(self, component: str, index: int = 0) -> list[str]:
        """Return the arguments of one pod, with variables replaced as the kubelet does."""
        arguments: list[str] = self.container(component).get("args", [])
        for name, value in self.environment(component, index).items():
            arguments = [word.replace(f"$({name})", value) for word in arguments]
        return arguments


def render(chart: Chart, values: Object) -> Release:
    values = values | {"image": {"repository": "nsq-cluster"} | values.get("image", {})}
    sources = chart.render(values, name=NAME, namespace=NAMESPACE)
    merged = chart.merge_values(values)
    for component in ("nsqd", "nsqlookupd", "nsqadmin", "archive", "tools"):
        merged[component] = merged["defaults"] | merged[component]
    return Release(sources, merged)


def scalars(thing: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf of an object with its path, ``spec.ports.0.name``."""
    if isinstance(thing, dict):
        for key, value in thing.items():
            yield from scalars(value, f"{path}.{key}".lstrip("."))
    elif isinstance(thing, list):
        for index, value in enumerate(thing):
            yield from scalars(value, f"{path}.{index}".lstrip("."))
    else:
        yield path, thing
