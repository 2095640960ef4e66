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


async def test_replica_without_lasting_problem_is_not_replaced_at_once():
    node = Node(ONE)
    choice = choice_of(node, ONE, TWO)
    choice.update([Connection(ONE, connected=False)], NOW)
    await choice.choose(NOW + 10 * _S)
    assert node.replicas == [ONE]

    await choice.choose(NOW + 320 * _S)
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


async def test_refused_named_replica_is_not_taken_for_another_without_identity():
    node = Node(wanted=2)
    choice = choice_of(node, named=("one:4150", "two:4150", "three:4150"))
    await choice.choose(NOW)
    first, second = node.replicas
    choice.update([Connection(Holder(b"", second.address), refused=1, connected=False)], NOW)
    await choice.choose(NOW + _S)

    assert first in node.replicas
    assert second not in node.replicas


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
