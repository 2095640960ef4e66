"""What a broker learns of its node."""

import tomllib

import pytest

from nsqcore.options.options import parse
from nsqd.options import NsqdOptions
from nsqtools.kube import place as placing
from nsqtools.kube.access import ApiFailed
from tests.support.fake_kubernetes import Fault, service

NODE = "/api/v1/nodes/worker"
SERVICE = "/api/v1/namespaces/mq/services/mq-nsqd-1"
SERVICES = "/api/v1/namespaces/mq/services"
ZONES = {"topology.kubernetes.io/region": "east", "topology.kubernetes.io/zone": "east-1"}


def options(tmp_path, *more):
    return placing.parse_arguments([f"--output={tmp_path}/nsqd.toml", "--timeout=30s", *more])


def outside(tmp_path, *more):
    return options(tmp_path, "--namespace=mq", "--service=mq-nsqd-1", "--host-address=10.0.0.3", *more)


def written(tmp_path):
    return tomllib.loads((tmp_path / "nsqd.toml").read_text())


def test_region_and_zone_are_those_of_node(api, kubernetes, tmp_path):
    kubernetes.objects[NODE] = {"metadata": {"labels": ZONES | {"other": "x"}}}

    placing.place(options(tmp_path, "--node=worker"), api)

    assert written(tmp_path) == {"topology_region": "east", "topology_zone": "east-1"}


def test_place_file_is_read_by_nsqd(api, kubernetes, tmp_path):
    kubernetes.objects[NODE] = {"metadata": {"labels": {"topology.kubernetes.io/zone": 'a "b" \\c'}}}
    kubernetes.objects[SERVICE] = service("mq-nsqd-1", "NodePort")

    placing.place(outside(tmp_path, "--node=worker"), api)

    told = parse(NsqdOptions, "nsqd", [f"--config={tmp_path}/nsqd.toml"])
    assert told.topology_zone == 'a "b" \\c'
    assert (told.broadcast_address, told.broadcast_tcp_port) == ("10.0.0.3", 30150)
    assert told.broadcast_http_port == 30151


@pytest.mark.parametrize("fault", [Fault(403), Fault(404)])
def test_zone_that_cannot_be_read_does_not_keep_broker_from_its_work(
    api, kubernetes, tmp_path, capsys, fault
):
    kubernetes.faults[f"GET {NODE}"] = [fault]

    placing.place(options(tmp_path, "--node=worker"), api)

    assert written(tmp_path) == {}
    assert "the zone of this broker stays unknown: cannot read node worker" in capsys.readouterr().err


def test_address_of_ones_own_is_announced_with_port_of_node(api, kubernetes, tmp_path):
    kubernetes.objects[SERVICE] = service("mq-nsqd-1", "NodePort")

    placing.place(outside(tmp_path, "--address=mq0.example.com", "--address=mq1.example.com"), api)

    assert written(tmp_path)["broadcast_address"] == "mq1.example.com"


@pytest.mark.parametrize(
    ("ingress", "address"),
    [({"ip": "192.0.2.1"}, "192.0.2.1"), ({"hostname": "lb.example.com"}, "lb.example.com")],
)
def test_load_balancer_is_announced_with_ports_of_nsq(api, kubernetes, tmp_path, ingress, address):
    kubernetes.objects[SERVICE] = service("mq-nsqd-1", "LoadBalancer", ingress=[ingress])

    placing.place(outside(tmp_path), api)

    assert written(tmp_path) == {
        "broadcast_address": address,
        "broadcast_tcp_port": 4150,
        "broadcast_http_port": 4151,
    }


def test_load_balancer_without_address_is_waited_for(api, kubernetes, tmp_path):
    kubernetes.objects[SERVICE] = service("mq-nsqd-1", "LoadBalancer")
    ready = service("mq-nsqd-1", "LoadBalancer", ingress=[{"ip": "192.0.2.1"}])
    changes = [kubernetes.objects[SERVICE], ready]
    kubernetes.streams[SERVICES] = [lambda: iter({"type": "MODIFIED", "object": each} for each in changes)]

    placing.place(outside(tmp_path), api)

    assert written(tmp_path)["broadcast_address"] == "192.0.2.1"


def test_address_that_came_while_watch_was_broken_is_found(api, kubernetes, tmp_path):
    kubernetes.objects[SERVICE] = service("mq-nsqd-1", "LoadBalancer")
    ready = service("mq-nsqd-1", "LoadBalancer", ingress=[{"ip": "192.0.2.1"}])

    def ends_without_a_word():
        kubernetes.objects[SERVICE] = ready
        return iter(())

    kubernetes.faults[f"WATCH {SERVICES}"] = [Fault(410), "hang up"]
    kubernetes.streams[SERVICES] = [ends_without_a_word]

    placing.place(outside(tmp_path), api)

    assert written(tmp_path)["broadcast_address"] == "192.0.2.1"
    assert kubernetes.asked[f"WATCH {SERVICES}"] == 3


def test_address_that_never_comes_ends_wait(api, kubernetes, tmp_path, waiting):
    kubernetes.objects[SERVICE] = service("mq-nsqd-1", "LoadBalancer")
    kubernetes.faults[f"WATCH {SERVICES}"] = [Fault(503, {"Retry-After": "20"})] * 10

    with pytest.raises(ApiFailed):
        placing.wait_for_outside(api, outside(tmp_path))

    assert waiting.now_s <= 60


def test_service_that_may_not_be_read_ends_program_with_one_line(
    kubernetes, api, tmp_path, capsys, monkeypatch
):
    kubernetes.faults[f"GET {SERVICE}"] = [Fault(403)]
    monkeypatch.setattr(placing, "in_cluster", lambda _: api)

    assert placing.main([f"--output={tmp_path}/nsqd.toml", "--namespace=mq", "--service=mq-nsqd-1"]) == 1
    assert capsys.readouterr().err == (
        "place: cannot read Service mq-nsqd-1: the account of this pod may not\n"
    )
    assert not (tmp_path / "nsqd.toml").exists()
