"""When a keeper appoints others in place of a home that does not come back."""

import errno

import pytest

from nsqd.replication.serving import CopyPhase
from tests.campaign.carried.node import SECOND
from tests.campaign.carried.site import PATIENCE
from tests.support.copied_site import has, settle

PATIENCE_S = PATIENCE // 1_000_000_000


@pytest.fixture
def site(copied_site):
    """The first of three nodes has five messages, and one keeper."""
    return copied_site(3)


def keeper_of(site):
    (line,) = [one for one in site.lines if one.home == 1]
    return line.keeper


def carried(node, identity):
    return [one.serving.appointment for one in node.carrier.of(identity) if one.phase is CopyPhase.CARRIED]


def kept(node, identity):
    """The copies of the home on this node."""
    return node.keeping.copies.appointments(identity)


@pytest.fixture
def gone(site):
    """The first node and its disk are lost; returns its identity, its keeper and the other node."""
    identity, keeper = site.nodes[1].identity, keeper_of(site)
    site.lose_disk(1)
    return identity, keeper, 5 - keeper


def test_a_home_that_is_gone_for_long_is_copied_on_by_its_keeper(site, gone):
    identity, keeper, other = gone
    settle(site, 40)
    assert kept(site.nodes[other], identity) == []

    settle(site, PATIENCE_S)

    assert carried(site.nodes[keeper], identity) == [1]
    assert kept(site.nodes[other], identity) == [2]
    assert carried(site.nodes[other], identity) == []


def test_a_second_loss_costs_nothing_either(site, gone):
    _, keeper, other = gone
    settle(site, 40 + PATIENCE_S)
    reader = site.nodes[keeper].read("t", "c", 2)
    for message in list(reader.take()):
        assert site.nodes[keeper].answer(reader, message, "FIN")
    site.nodes[keeper].leave(reader)
    settle(site, 10)

    site.lose_disk(keeper)
    settle(site, 40)

    assert len(has(site.nodes[other])) == 3


def test_on_a_disk_that_fails_who_stands_in_tries_once_a_second_and_says_so_once(site, gone):
    _, keeper, _ = gone
    settle(site, 40 + PATIENCE_S)
    node = site.nodes[keeper]
    reader = node.read("t", "c", 2)
    for message in list(reader.take()):
        assert node.answer(reader, message, "FIN")
    node.disk.failed = 0
    fault = node.disk.fail(errno.ENOSPC, path="*/carried/*/t.topic/checkpoint.*", times=None)
    site.step = SECOND // 20
    site.advance(15)

    assert 5 <= node.disk.failed <= 15
    assert len([text for text in node.said if "failed to write a checkpoint" in text]) == 1
    node.disk.faults.remove(fault)
    settle(site, 10)
    assert node.disk.failed <= 15


def test_that_no_keepers_can_be_appointed_is_said_once(site, gone):
    identity, keeper, other = gone
    settle(site, 40)
    node = site.nodes[keeper]
    node.disk.failed = 0
    node.carrier.successors.forget(identity)
    fault = node.disk.fail(errno.EIO, path="*appointments.json", times=None)
    site.step = SECOND // 20
    settle(site, PATIENCE_S)
    tries = node.disk.failed

    assert len([text for text in node.said if "no keepers can be appointed" in text]) == 1
    assert 1 < tries <= PATIENCE_S
    node.disk.faults.remove(fault)
    settle(site, 30)
    assert kept(site.nodes[other], identity) == [2]


def test_who_stood_in_and_comes_back_leaves_it_to_its_successor(site, gone):
    identity, keeper, other = gone
    settle(site, 40 + PATIENCE_S)
    site.kill(keeper)
    settle(site, 40)
    site.start(keeper)
    settle(site, 40)

    assert carried(site.nodes[other], identity) == [2]
    assert len(has(site.nodes[other])) == 5
    assert has(site.nodes[keeper]) == b""


def test_a_home_that_comes_back_after_all_has_it_back_and_the_successor_s_copy_goes(site):
    identity, keeper = site.nodes[1].identity, keeper_of(site)
    other = 5 - keeper
    site.kill(1)
    settle(site, 40 + PATIENCE_S)
    assert kept(site.nodes[other], identity) == [2]
    assert carried(site.nodes[other], identity) == []

    site.start(1)
    settle(site, 40)

    assert kept(site.nodes[other], identity) == []
    assert carried(site.nodes[keeper], identity) == []
    assert len(has(site.nodes[1])) == 5
    # The next appointment is above all that were given.
    assert site.nodes[1].file.appointments.last >= 2


def test_what_nobody_is_owed_is_not_copied_on(site, gone):
    identity, keeper, other = gone
    settle(site, 40)
    reader = site.nodes[keeper].read("t", "c", 10)
    for message in list(reader.take()):
        assert site.nodes[keeper].answer(reader, message, "FIN")

    settle(site, PATIENCE_S)

    assert kept(site.nodes[other], identity) == []


@pytest.mark.parametrize("older", [False, True])
def test_when_what_was_handed_over_is_done_with_its_successor_lets_go_too(site, older):
    identity = site.nodes[1].identity
    site.leave(1, "n2:4150")
    for _ in range(30):
        settle(site, 1)
        if site.nodes[1].leaving.state == "handed over":
            break
    site.lose_disk(1)
    settle(site, 10)
    # The log is copied on at once.
    assert len(kept(site.nodes[3], identity)) == 1
    for line in site.lines:
        if line.apart and older:
            # The keeper has not said that it has no other copies, which might have messages of their own.
            line.link.has_no_older = False
    reader = site.nodes[2].read("t", "c", 10)
    for message in list(reader.take()):
        assert site.nodes[2].answer(reader, message, "FIN")

    settle(site, 10)

    assert kept(site.nodes[2], identity) == []
    copies = site.nodes[3].keeping.copies
    assert any(copies.topics(identity, one) for one in kept(site.nodes[3], identity)) == older
    if older:
        return
    settle(site, 40)
    assert "t" not in site.nodes[3].broker.topics
