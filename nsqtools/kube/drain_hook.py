"""Drain a broker before its pod stops, and write an event about what is left: a preStop hook of the chart.

    POD_NAMESPACE=mq POD_NAME=mq-nsqd-2 python -m nsqtools.kube.drain_hook --stateful-set=mq-nsqd -- FLAGS...

The environment of the container names the pod, because Kubernetes replaces no `$(NAME)` in the command of a
hook. The flags are those of `python -m nsqd.drain`, and the hook ends with its exit code. With `--hand-over`
the messages left on a pod that is scaled away go to another broker; a pod that is restarted keeps its
messages. `--domain` is the domain of the pods; with it the hook names the broker that takes the messages.
With `--events` an event is written about the messages that are left: about the StatefulSet when the pod is
scaled away, because the pod no longer exists then, and about the pod otherwise. Whatever fails
when the API is asked, the drain still runs, but without the hand-over and the event.
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


@dataclass(frozen=True, slots=True)
class HookOptions:
    namespace: str
    pod: str
    stateful_set: str
    drain: tuple[str, ...]
    hand_over: bool = False
    events: bool = True
    domain: str = ""


def is_scaled_away(api: KubeApi, options: HookOptions) -> bool:
    """Whether the pod does not come back. Raises ApiFailed and ValueError."""
    return _index(options) not in api.ordinals(options.namespace, options.stateful_set)


def target_of(api: KubeApi, options: HookOptions) -> str:
    """The address of a pod that stays. Raises ApiFailed and ValueError.

    Pods that are scaled away have different targets. It is empty if the domain is unknown or no pod stays.
    """
    pods = api.ordinals(options.namespace, options.stateful_set)
    if not (options.domain and pods):
        return ""
    return f"{options.stateful_set}-{pods[_index(options) % len(pods)]}.{options.domain}:4150"


def _index(options: HookOptions) -> int:
    """The number of the pod. Raises ApiFailed, and ValueError for a pod of no StatefulSet."""
    if not (options.namespace and options.pod):
        raise ApiFailed("the environment names no pod: POD_NAMESPACE and POD_NAME are needed")
    return int(options.pod.rpartition("-")[2])


def tell(api: KubeApi, options: HookOptions, left: str) -> str:
    """Write the event about what a drain left, and return its text. Raises ApiFailed and ValueError."""
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


def drain_flags(options: HookOptions, *, goes: bool, target: str = "") -> list[str]:
    """The flags of the drain: *goes* is true for a pod that is scaled away, false for one that restarts."""
    named = [f"--hand-over-to={target}"] if goes and target else []
    return [f"--hand-over={'auto' if goes else 'never'}", *named, *options.drain]


def hook(options: HookOptions, connect: Callable[[], KubeApi]) -> int:
    """Run the drain, write the event about what it left, and return its exit code."""
    goes, target = False, ""
    if options.hand_over:
        try:
            api = connect()
            if is_scaled_away(api, options):
                goes, target = True, target_of(api, options)
        except Exception as error:  # noqa: BLE001 - whatever it is, the drain is not left out
            output.tell(f"nothing is handed over: {error}")
    done = subprocess.run(  # noqa: S603 - the flags are the chart's
        [sys.executable, "-m", "nsqd.drain", *drain_flags(options, goes=goes, target=target)],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.stderr:
        output.tell(done.stderr.removesuffix("\n"))
    if done.returncode and options.events:
        left = done.stderr.strip().rpartition("\n")[2].removeprefix("nsqd-drain: ")
        try:
            output.tell(f"event: {tell(connect(), options, left)}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the exit code is that of the drain
            output.tell(f"no event about it: {error}")
    return done.returncode


def parse_arguments(argv: Sequence[str]) -> HookOptions:
    parser = ArgumentParser(prog="nsqtools.kube.drain_hook", description="Drain, and tell what is left.")
    parser.add_argument("--stateful-set", required=True, help="that the pod belongs to")
    parser.add_argument("--hand-over", action="store_true", help="what is left of a pod that is scaled away")
    parser.add_argument("--domain", default="", help="of the pods: with it, what is left goes to a named pod")
    parser.add_argument("--events", action="store_true", help="write an event about what is left")
    parser.add_argument("drain", nargs="*", help="flags of nsqd.drain, after --")
    given = parser.parse_args(argv)
    return HookOptions(
        os.environ.get("POD_NAMESPACE", ""),
        os.environ.get("POD_NAME", ""),
        given.stateful_set,
        tuple(given.drain),
        given.hand_over,
        given.events,
        given.domain,
    )


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(sys.argv[1:] if argv is None else argv)
    return hook(options, lambda: in_cluster(PATIENCE_S))


if __name__ == "__main__":
    sys.exit(main())
