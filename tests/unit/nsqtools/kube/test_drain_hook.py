"""The preStop hook writes an event about the messages that it left; the drain itself is the real one."""

from contextlib import redirect_stderr, suppress
from pathlib import Path

import pytest

from bench.ports import free_port
from nsqtools.kube.access import ApiFailed
from nsqtools.kube.drain_hook import HookOptions, command, hook, is_scaled_away, parse_arguments, write_event
from tests.support.fake_kubernetes import Fault

SET = "/apis/apps/v1/namespaces/mq/statefulsets/mq-nsqd"
EVENTS = "/api/v1/namespaces/mq/events"


@pytest.fixture
def two_replicas(kubernetes):
    spec = {"replicas": 2, "selector": {}, "template": {}, "serviceName": "mq-nsqd-headless"}
    kubernetes.objects[SET] = {"metadata": {"name": "mq-nsqd"}, "spec": spec}


def of_pod(name, *drain):
    return HookOptions("mq", name, "mq-nsqd", drain)


def test_words_after_two_dashes_are_those_of_drain(monkeypatch):
    monkeypatch.setenv("POD_NAMESPACE", "mq")
    monkeypatch.setenv("POD_NAME", "mq-nsqd-2")
    words = [
        "--stateful-set=mq-nsqd",
        "--decommission",
        "--targets=mq-nsqd-headless:4150",
        "--events",
        "--",
        "--timeout=5s",
        "--grace=1s",
    ]

    assert parse_arguments(words) == HookOptions(
        "mq",
        "mq-nsqd-2",
        "mq-nsqd",
        ("--timeout=5s", "--grace=1s"),
        decommission=True,
        events=True,
        targets="mq-nsqd-headless:4150",
    )


def test_event_of_stateful_set_reports_stranded_messages(api, kubernetes, two_replicas):
    write_event(api, of_pod("mq-nsqd-2"), "12 messages in orders")

    ((path, event),) = kubernetes.created
    assert path == EVENTS
    assert event["reason"] == "MessagesStranded"
    assert event["involvedObject"]["kind"] == "StatefulSet"
    assert event["message"] == (
        "mq-nsqd-2 was scaled away before it was empty: 12 messages in orders."
        " They are on the claim data-mq-nsqd-2; scale up to 3 again to have them delivered."
    )


def test_event_of_pod_reports_backlog_at_restart(api, kubernetes, two_replicas):
    write_event(api, of_pod("mq-nsqd-1"), "12 messages in orders")

    ((_, event),) = kubernetes.created
    assert (event["reason"], event["involvedObject"]["kind"]) == ("MessagesLeft", "Pod")
    assert event["involvedObject"]["name"] == "mq-nsqd-1"


def test_failed_drain_is_reported_with_its_exit_code(api, kubernetes, two_replicas, capfd):
    options = of_pod("mq-nsqd-2", f"--http-address=127.0.0.1:{free_port()}", "--timeout=1s")

    assert hook(options, lambda: api) == 1

    ((_, event),) = kubernetes.created
    assert "was scaled away before it was empty: POST http://127.0.0.1" in event["message"]
    said = capfd.readouterr().err
    assert "nsqd-drain: POST http://" in said
    assert "event: mq-nsqd-2 was scaled away" in said


def test_event_is_written_also_when_stderr_takes_nothing(api, kubernetes, two_replicas):
    options = of_pod("mq-nsqd-2", f"--http-address=127.0.0.1:{free_port()}")
    # The suppressed error is that of closing the file.
    with suppress(OSError), Path("/dev/full").open("w", buffering=1) as full, redirect_stderr(full):
        code = hook(options, lambda: api)

    assert (code, len(kubernetes.created)) == (1, 1)


def test_account_without_right_changes_nothing_else(api, kubernetes, two_replicas, capfd):
    kubernetes.faults[f"POST {EVENTS}"] = [Fault(403)]
    options = of_pod("mq-nsqd-2", f"--http-address=127.0.0.1:{free_port()}", "--timeout=1s")

    assert hook(options, lambda: api) == 1
    assert (
        "no event about it: cannot create an event: the account of this pod may not" in capfd.readouterr().err
    )


def test_pod_without_any_account_changes_nothing_else(capfd):
    def no_account():
        raise ApiFailed("cannot use the account of this pod: none is mounted")

    assert hook(of_pod("mq-nsqd-2", f"--http-address=127.0.0.1:{free_port()}"), no_account) == 1
    assert "no event about it: cannot use the account of this pod" in capfd.readouterr().err


def test_broker_that_emptied_makes_no_event(cluster, kubernetes):
    nsqd = cluster.nsqd()

    assert hook(of_pod("mq-nsqd-2", f"--http-address={nsqd.http_address}"), lambda: None) == 0
    assert kubernetes.created == []


FLAGS = ("--http-address=127.0.0.1:4151", "--timeout=5s", "--grace=1s", "--poll-interval=2s")


def leaving(name, targets="", **more):
    return HookOptions("mq", name, "mq-nsqd", FLAGS, decommission=True, targets=targets, **more)


def test_pod_is_decommissioned_only_when_scaled_away(api, kubernetes, two_replicas):
    assert is_scaled_away(api, of_pod("mq-nsqd-2"))
    assert not is_scaled_away(api, of_pod("mq-nsqd-1"))

    assert command(leaving("mq-nsqd-2"), lambda: api) == ["nsqd.decommission", *FLAGS[:3]]
    assert command(leaving("mq-nsqd-1"), lambda: api) == ["nsqd.drain", *FLAGS]
    assert command(of_pod("mq-nsqd-2", *FLAGS), lambda: api) == ["nsqd.drain", *FLAGS]


def test_remaining_pod_takes_logs_over_without_replicas(api, kubernetes, two_replicas):
    found = [
        command(leaving(f"mq-nsqd-{number}", "mq-nsqd-headless:4150"), lambda: api)[-1] for number in (2, 3)
    ]

    assert found == ["--to=mq-nsqd-0.mq-nsqd-headless:4150", "--to=mq-nsqd-1.mq-nsqd-headless:4150"]


def test_set_of_no_pods_names_no_target(api, kubernetes, two_replicas):
    kubernetes.objects[SET]["spec"]["replicas"] = 0

    assert command(leaving("mq-nsqd-0", "mq-nsqd-headless:4150"), lambda: api) == [
        "nsqd.decommission",
        *FLAGS[:3],
    ]


def test_decommission_that_fails_is_reported(api, kubernetes, two_replicas, capfd):
    flags = (f"--http-address=127.0.0.1:{free_port()}", "--timeout=1s", "--grace=1500ms")

    assert hook(HookOptions("mq", "mq-nsqd-2", "mq-nsqd", flags, decommission=True), lambda: api) == 1

    ((_, event),) = kubernetes.created
    assert "was scaled away before it was empty: POST http://127.0.0.1" in event["message"]
    assert "nsqd-decommission: POST http://" in capfd.readouterr().err


def test_numbers_of_pods_may_begin_anywhere(api, kubernetes, two_replicas):
    kubernetes.objects[SET]["spec"]["ordinals"] = {"start": 5}

    away = [number for number in range(9) if is_scaled_away(api, of_pod(f"mq-nsqd-{number}"))]
    assert away == [0, 1, 2, 3, 4, 7, 8]
    assert "set ordinals.start to 4 again" in write_event(api, of_pod("mq-nsqd-4"), "12 messages in orders")
    assert "scale up to 8 again" in write_event(api, of_pod("mq-nsqd-7"), "12 messages in orders")


def test_account_that_may_not_ask_whether_pod_goes_is_drained(api, kubernetes, capfd):
    drain = (f"--http-address=127.0.0.1:{free_port()}", "--timeout=1s")
    options = HookOptions("mq", "mq-nsqd-2", "mq-nsqd", drain, decommission=True, events=False)

    assert hook(options, lambda: api) == 1

    assert "not decommissioned: cannot read StatefulSet mq-nsqd: it does not exist" in capfd.readouterr().err


def broken():
    raise RuntimeError("no such thing")


@pytest.mark.parametrize(
    ("namespace", "pod", "fails", "problem"),
    [
        ("", "", False, "the environment names no pod: POD_NAMESPACE and POD_NAME are needed"),
        ("mq", "mq-nsqd", False, "invalid literal"),
        ("mq", "mq-nsqd-2", True, "no such thing"),
    ],
)
def test_pod_that_cannot_be_judged_is_drained(
    cluster, api, kubernetes, two_replicas, capfd, namespace, pod, fails, problem
):
    nsqd = cluster.nsqd()
    drain = (f"--http-address={nsqd.http_address}", "--timeout=5s")
    options = HookOptions(namespace, pod, "mq-nsqd", drain, decommission=True)

    assert hook(options, broken if fails else lambda: api) == 0

    assert nsqd.get("/drain")["drained"]
    assert f"not decommissioned: {problem}" in capfd.readouterr().err


def test_unknown_pod_gets_no_event_after_drain(api, kubernetes, two_replicas, capfd):
    drain = (f"--http-address=127.0.0.1:{free_port()}", "--timeout=1s")

    assert hook(HookOptions("mq", "", "mq-nsqd", drain), lambda: api) == 1

    assert kubernetes.created == []
    assert "no event about it: the environment names no pod" in capfd.readouterr().err
