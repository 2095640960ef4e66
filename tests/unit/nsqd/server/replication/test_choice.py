"""The choice of replicas: after a restart, while one drains, and with the target of a decommission."""

import io
from types import SimpleNamespace

import pytest

from nsqcore.process.logs import Log, LogLevel
from nsqd.replication.choosing import Candidate
from nsqd.replication.frames import Draining, Holder
from nsqd.server.replication.choice import ReplicaChoice

_S = 1_000_000_000
NOW = 1_700_000_000 * _S
ME = Candidate(b"m" * 16, "me:4150")
ONE, TWO = Holder(b"1" * 16, "one:4150"), Holder(b"2" * 16, "two:4150")


class Node:
    """What a choice sees of the node."""

    def __init__(self, *replicas, wanted=1):
        record = SimpleNamespace(replicas=replicas)
        self.settings = SimpleNamespace(replicas=wanted)
        self.state = SimpleNamespace(record=record, is_decommissioning=False, target="")
        self.primary = object()
        self.replicas = []

    def set_replicas(self, replicas):
        self.replicas = list(replicas)


class Connection:
    """A connector whose node is connected, or not."""

    def __init__(self, holder, *, refused=0, drains=False, connected=True):
        self.identity, self.address, self.refused = holder.identity, holder.address, refused
        stream = SimpleNamespace(is_up=True)
        link = SimpleNamespace(
            peer=holder.identity, draining=Draining(drains), peer_drains=drains, stream_of=lambda _: stream
        )
        self.link = link if connected else None


def choice_of(node, *candidates, named=()):
    async def ask():
        return [Candidate(one.identity, one.address) for one in candidates]

    log = Log("", LogLevel.FATAL, io.StringIO())
    return ReplicaChoice(node, ME, named, 300 * _S, ask, log, NOW)


@pytest.mark.parametrize("named", [(), ("one:4150", "two:4150")])
@pytest.mark.parametrize("last", [ONE, TWO])
async def test_replicas_stay_after_restart(last, named):
    node = Node(last)
    choice = choice_of(node, ONE, TWO, named=named)
    await choice.choose(NOW)
    await choice.choose(NOW + 61 * _S)

    assert node.replicas == [last]


async def test_draining_replica_is_replaced_within_seconds():
    node = Node(ONE)
    choice = choice_of(node, ONE, TWO)
    choice.update([Connection(ONE)], NOW)
    await choice.choose(NOW)
    choice.update([Connection(ONE, drains=True)], NOW + _S)
    await choice.choose(NOW + 7 * _S)

    assert node.replicas == [TWO]


async def test_lost_replica_is_replaced_within_seconds_after_its_time_is_over():
    node = Node(ONE)
    choice = choice_of(node, ONE, TWO)
    await choice.choose(NOW)
    choice.update([Connection(ONE)], NOW + 30 * _S)
    for second in range(30, 337, 6):
        await choice.choose(NOW + second * _S)

    assert node.replicas == [TWO]


@pytest.mark.parametrize("named", [(), ("one:4150",)])
async def test_target_of_decommission_is_one_more_replica(named):
    node = Node(ONE)
    choice = choice_of(node, ONE, named=named)
    await choice.choose(NOW)
    node.state.is_decommissioning, node.state.target = True, "two:4150"
    for second in range(1, 20):
        choice.update([Connection(ONE), Connection(TWO)], NOW + second * _S)
        await choice.choose(NOW + second * _S)
    assert node.replicas == [ONE, TWO]

    node.state.is_decommissioning, node.state.target = False, ""
    await choice.choose(NOW + 90 * _S)
    assert node.replicas == [ONE]


async def test_named_node_becomes_replica_when_it_has_answered():
    node = Node(wanted=2)
    choice = choice_of(node, named=("one:4150", "two:4150", "me:4150"))
    assert choice.addresses == ["one:4150", "two:4150"]
    await choice.choose(NOW)
    assert node.replicas == []

    # Two names of one node are one replica.
    choice.update([Connection(ONE), Connection(Holder(ONE.identity, "two:4150"))], NOW)
    await choice.choose(NOW + _S)
    assert [one.identity for one in node.replicas] == [ONE.identity]

    choice.update([Connection(ONE), Connection(TWO)], NOW + 2 * _S)
    await choice.choose(NOW + 2 * _S)
    assert {one.identity for one in node.replicas} == {ONE.identity, TWO.identity}


async def test_named_node_with_another_data_path_replaces_its_earlier_identity():
    node = Node(ONE)
    choice = choice_of(node, named=("one:4150",))
    new = Holder(b"9" * 16, "one:4150")
    choice.update([Connection(new)], NOW)
    await choice.choose(NOW + _S)

    assert node.replicas == [new]


async def test_named_replica_that_refuses_is_replaced_by_another_name():
    node = Node(ONE)
    choice = choice_of(node, named=("one:4150", "two:4150"))
    choice.update([Connection(ONE, refused=1, connected=False), Connection(TWO)], NOW)
    await choice.choose(NOW + _S)

    assert node.replicas == [TWO]


async def test_replicas_that_are_not_named_any_more_are_dropped():
    assert choice_of(Node(ONE, TWO, wanted=2), named=("two:4150",)).replicas == (TWO,)


async def test_choice_without_candidate_says_so_once():
    node, shown = Node(), io.StringIO()
    candidates = []

    async def ask():
        return candidates

    choice = ReplicaChoice(node, ME, (), 300 * _S, ask, Log("", LogLevel.INFO, shown), NOW)
    for second in range(20):
        await choice.choose(NOW + second * _S)

    assert choice.waits_for == "a candidate"
    assert shown.getvalue().count("no other candidate exists") == 1

    candidates.append(Candidate(TWO.identity, TWO.address))
    await choice.choose(NOW + 30 * _S)
    assert choice.waits_for == ""
    assert node.replicas == [TWO]
