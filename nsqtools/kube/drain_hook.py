"""Drain or decommission a broker before its pod stops, and write an event about what is left: a preStop hook.

    POD_NAMESPACE=mq POD_NAME=mq-nsqd-2 python -m nsqtools.kube.drain_hook --stateful-set=mq-nsqd -- FLAGS...

The environment of the container names the pod, because Kubernetes replaces no `$(NAME)` in the command of a
hook. The flags are those of `nsqd-drain`, and the hook ends with the exit code of the command that it runs.
With `--decommission` a pod that is scaled away runs `nsqd-decommission`: its messages are transferred to
other brokers. A pod that is restarted is only drained. With `--targets` the hook names the pod that takes the
logs over, one of those that stay; without it, a replica takes them over. With `--events` an event is written
about the messages that are left: about the StatefulSet when the pod is scaled away, because the pod no longer
exists then, and about the pod otherwise. When the API cannot be asked, the pod is drained and no event is
written.
"""

import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kubernetes import client

from nsqcore.process import output
from nsqtools.kube.access import ApiFailed, KubeApi, in_cluster

# Short, because it is part of the time that nsqd has to stop.
PATIENCE_S: Final = 5.0
# A flag of nsqd-drain that nsqd-decommission does not have.
_ONLY_DRAIN: Final = "--poll-interval"


@dataclass(frozen=True, slots=True)
class HookOptions:
    namespace: str
    pod: str
    stateful_set: str
    drain: tuple[str, ...]
    decommission: bool = False
    events: bool = True
    targets: str = ""
    """HOST:PORT of the headless Service: a pod of it takes the logs over. Empty: a replica does."""


def is_scaled_away(api: KubeApi, options: HookOptions) -> bool:
    """Whether the pod does not come back. Raises ApiFailed and ValueError."""
    return _index(options) not in api.ordinals(options.namespace, options.stateful_set)


def _index(options: HookOptions) -> int:
    """The number of the pod. Raises ApiFailed, and ValueError for a pod of no StatefulSet."""
    if not (options.namespace and options.pod):
        raise ApiFailed("the environment names no pod: POD_NAMESPACE and POD_NAME are needed")
    return int(options.pod.rpartition("-")[2])


def write_event(api: KubeApi, options: HookOptions, left: str) -> str:
    """Write the event about the remaining messages, and return its text. Raises ApiFailed and ValueError."""
    index = _index(options)
    pods = api.ordinals(options.namespace, options.stateful_set)
    if index not in pods:
        kind, version, name, reason = "StatefulSet", "apps/v1", options.stateful_set, "MessagesStranded"
        text = (
            f"{options.pod} was scaled away before it was empty: {left}."
            f" They are on the claim data-{options.pod};"
            f" {f'scale up to {index + 1}' if index >= pods.stop else f'set ordinals.start to {index}'} again"
            " to have them delivered."
        )
    else:
        kind, version, name, reason = "Pod", "v1", options.pod, "MessagesLeft"
        text = f"{options.pod} stopped before it was empty: {left}. They are delivered when it is back."
    about = client.V1ObjectReference(api_version=version, kind=kind, name=name, namespace=options.namespace)
    api.warn(options.namespace, about, reason, text, options.pod)
    return text


def target(api: KubeApi, options: HookOptions) -> str:
    """The address of a pod that stays and takes the logs over; empty if none stays. Raises ApiFailed."""
    staying = api.ordinals(options.namespace, options.stateful_set)
    if not options.targets or not staying:
        return ""
    # Pods that stop at the same time transfer to different pods.
    return f"{options.stateful_set}-{staying[_index(options) % len(staying)]}.{options.targets}"


def command(options: HookOptions, connect: Callable[[], KubeApi]) -> list[str]:
    """The module to run and its flags: a decommission for a pod that is scaled away, otherwise a drain."""
    if options.decommission:
        try:
            api = connect()
            if is_scaled_away(api, options):
                flags = [word for word in options.drain if not word.startswith(_ONLY_DRAIN)]
                to = target(api, options)
                return ["nsqd.decommission", *flags, *([f"--to={to}"] if to else [])]
        except Exception as error:  # noqa: BLE001 - any error: the pod is still drained
            output.write_message(f"not decommissioned: {error}")
    return ["nsqd.drain", *options.drain]


def hook(options: HookOptions, connect: Callable[[], KubeApi]) -> int:
    """Drain or decommission, write the event about what is left, and return the exit code."""
    words = command(options, connect)
    done = subprocess.run(  # noqa: S603 - the flags are the chart's
        [sys.executable, "-m", *words], stderr=subprocess.PIPE, text=True, check=False
    )
    if done.stderr:
        output.write_message(done.stderr.removesuffix("\n"))
    if done.returncode and options.events:
        left = done.stderr.strip().rpartition("\n")[2]
        for program in ("nsqd-drain", "nsqd-decommission"):
            left = left.removeprefix(f"{program}: ")
        try:
            output.write_message(f"event: {write_event(connect(), options, left)}")
        except Exception as error:  # noqa: BLE001 - any error: the exit code stays that of the command
            output.write_message(f"no event about it: {error}")
    return done.returncode


def parse_arguments(argv: Sequence[str]) -> HookOptions:
    parser = ArgumentParser(
        prog="nsqtools.kube.drain_hook", description="Drain or decommission, and report what is left."
    )
    parser.add_argument("--stateful-set", required=True, help="that the pod belongs to")
    parser.add_argument(
        "--decommission", action="store_true", help="transfer all logs of a pod that is scaled away"
    )
    parser.add_argument(
        "--targets", default="", metavar="HOST:PORT", help="headless Service of the pods that take over"
    )
    parser.add_argument("--events", action="store_true", help="write an event about what is left")
    parser.add_argument("drain", nargs="*", help="flags of nsqd.drain, after --")
    given = parser.parse_args(argv)
    return HookOptions(
        os.environ.get("POD_NAMESPACE", ""),
        os.environ.get("POD_NAME", ""),
        given.stateful_set,
        tuple(given.drain),
        given.decommission,
        given.events,
        given.targets,
    )


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(sys.argv[1:] if argv is None else argv)
    return hook(options, lambda: in_cluster(PATIENCE_S))


if __name__ == "__main__":
    sys.exit(main())
