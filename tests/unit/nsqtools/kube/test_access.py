"""Calls to an API server that refuses, is busy, hangs up or ends its watches."""

import pytest
from kubernetes import client

from nsqtools.kube.access import ApiFailed, Forbidden, NotFound, in_cluster
from tests.support.fake_kubernetes import Fault, service

NODE = "/api/v1/nodes/worker"
SERVICE = "/api/v1/namespaces/mq/services/mq-nsqd-0"
SERVICES = "/api/v1/namespaces/mq/services"
EVENTS = "/api/v1/namespaces/mq/events"


@pytest.fixture
def node(kubernetes):
    kubernetes.objects[NODE] = {"kind": "Node", "metadata": {"name": "worker", "labels": {"zone": "a"}}}


def test_call_returns_what_it_asks_for(api, node):
    assert api.node_labels("worker") == {"zone": "a"}


def test_missing_right_is_reported_immediately(api, kubernetes, node, waiting):
    kubernetes.faults[f"GET {NODE}"] = [Fault(403)]

    with pytest.raises(Forbidden, match=r"^cannot read node worker: the account of this pod may not$"):
        api.node_labels("worker")

    assert waiting.pauses == []


def test_missing_topic_is_reported_immediately(api, waiting):
    with pytest.raises(NotFound, match=r"^cannot read Service mq-nsqd-0: it does not exist$"):
        api.service("mq", "mq-nsqd-0")

    assert waiting.pauses == []


def test_busy_server_is_asked_again_after_time_it_names(api, kubernetes, node, waiting):
    kubernetes.faults[f"GET {NODE}"] = [Fault(429, {"Retry-After": "3"}), Fault(503), Fault(500)]

    assert api.node_labels("worker") == {"zone": "a"}
    assert waiting.pauses == [3.0, 0.5, 1.0]


def test_server_that_hangs_up_is_asked_again(api, kubernetes, node, waiting):
    kubernetes.faults[f"GET {NODE}"] = ["hang up", "hang up"]

    assert api.node_labels("worker") == {"zone": "a"}
    assert waiting.pauses == [0.25, 0.5]


def test_asking_has_an_end(api, kubernetes, node, waiting):
    kubernetes.faults[f"GET {NODE}"] = [Fault(503)] * 100

    with pytest.raises(ApiFailed, match=r"^cannot read node worker: the API server says 503 "):
        api.node_labels("worker")

    assert 40 < waiting.now_s < 60


def test_server_that_wants_longer_pause_than_there_is_time_is_not_waited_for(api, kubernetes, waiting):
    kubernetes.faults[f"GET {NODE}"] = [Fault(429, {"Retry-After": "120"})]

    with pytest.raises(ApiFailed, match="429"):
        api.node_labels("worker")

    assert waiting.pauses == []


def test_server_that_is_not_there_is_named_in_the_end(kubernetes, api, waiting):
    kubernetes.faults[f"GET {NODE}"] = ["hang up"] * 100

    with pytest.raises(ApiFailed, match="the API server does not answer"):
        api.node_labels("worker")


def test_watch_yields_changes_until_server_ends_it(api, kubernetes):
    changed = service("mq-nsqd-0", "LoadBalancer", ingress=[{"ip": "192.0.2.1"}])
    kubernetes.streams[SERVICES] = [lambda: iter([{"type": "MODIFIED", "object": changed}])]

    found = api.changes_of_service("mq", "mq-nsqd-0", "7")

    assert next(found).status.load_balancer.ingress[0].ip == "192.0.2.1"


@pytest.mark.parametrize("fault", [Fault(410), Fault(429), Fault(503), "hang up"])
def test_watch_that_fails_ends_after_pause_so_that_caller_reads_again(api, kubernetes, waiting, fault):
    kubernetes.faults[f"WATCH {SERVICES}"] = [fault]

    assert list(api.changes_of_service("mq", "mq-nsqd-0", "7")) == []
    assert waiting.pauses == [0.25]


def test_forbidden_watch_is_reported(api, kubernetes):
    kubernetes.faults[f"WATCH {SERVICES}"] = [Fault(403)]

    with pytest.raises(Forbidden, match=r"^cannot watch Service mq-nsqd-0: the account of this pod may not$"):
        list(api.changes_of_service("mq", "mq-nsqd-0", "7"))


def test_event_is_warning_about_one_object(api, kubernetes):
    about = client.V1ObjectReference(kind="Pod", name="mq-nsqd-0", namespace="mq")

    api.warn("mq", about, "MessagesLeft", "x" * 2000, "mq-nsqd-0")

    ((path, event),) = kubernetes.created
    assert path == EVENTS
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "MessagesLeft", "x" * 1024)
    assert event["involvedObject"] == {"kind": "Pod", "name": "mq-nsqd-0", "namespace": "mq"}
    assert event["metadata"] == {"generateName": "mq-nsqd-0.", "namespace": "mq"}


def test_event_whose_name_exists_gets_another(api, kubernetes):
    kubernetes.faults[f"POST {EVENTS}"] = [Fault(409)]
    about = client.V1ObjectReference(kind="Pod", name="mq-nsqd-0", namespace="mq")

    api.warn("mq", about, "MessagesLeft", "three messages", "mq-nsqd-0")

    assert kubernetes.asked[f"POST {EVENTS}"] == 2
    assert len(kubernetes.created) == 1


def test_conflict_of_read_is_not_repeated(api, kubernetes, node):
    kubernetes.faults[f"GET {NODE}"] = [Fault(409)]

    with pytest.raises(ApiFailed, match="409"):
        api.node_labels("worker")


def test_answer_that_makes_no_sense_is_failure(api, kubernetes):
    kubernetes.objects["/apis/apps/v1/namespaces/mq/statefulsets/mq-nsqd"] = {"spec": {"replicas": "many"}}

    with pytest.raises(ApiFailed, match=r"^cannot read StatefulSet mq-nsqd: the answer is not what"):
        api.ordinals("mq", "mq-nsqd")


def test_outside_of_pod_there_is_no_account(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(ApiFailed, match=r"^cannot use the account of this pod: "):
        in_cluster(1)
