"""What a node knows of a peer's copies, and when received channel state counts as stored."""

import pytest

from nsqd.replication.claims import Claim
from nsqd.replication.exchange import Checkpointing, no_copy
from nsqd.replication.frames import ChannelState, CopyId, CopyKind, Status
from nsqd.replication.log_state import PeerCopy
from nsqd.replication.sender import Sender
from tests.unit.nsqd.replication.small_site import finish, log_of, publish, site_of

ORIGIN, PEER = b"o" * 16, b"p" * 16


def status(*, kind=CopyKind.PROMOTED, full=False, epoch=1, counted=()):
    return Status(
        *(ORIGIN, 1, kind, epoch, epoch, PEER, 1),
        full=full,
        fully_replicated=bool(counted),
        last=True,
        counted=counted,
    )


def state(pending, topic="t", channel="c", generation=1):
    return ChannelState(
        *(ORIGIN, 1, topic, channel, generation), live=True, more=False, finished=(), pending=tuple(pending)
    )


@pytest.fixture
def known():
    found = PeerCopy(PEER, 1)
    found.take(status(full=True), [state([(0, 5)]), state([(0, 3)], topic="u")], 10)
    return found


C = ("c", 1)
U_PENDING = {"u": {C: [(0, 3)]}}


@pytest.mark.parametrize(
    ("full", "states", "pending"),
    [
        (True, [state([(7, 8)])], {"t": {C: [(7, 8)]}}),
        (False, [state([(4, 5)])], {"t": {C: [(4, 5)]}, **U_PENDING}),
        (False, [state([])], U_PENDING),
        (False, [state([(0, 2)]), state([(2, 4)])], {"t": {C: [(0, 4)]}, **U_PENDING}),
    ],
    ids=["full", "one topic", "nothing pending", "two parts of a channel"],
)
def test_status_replaces_topics_that_it_names(known, full, states, pending):
    known.take(status(full=full), states, 20)

    assert (known.pending, known.received_ns) == (pending, 20)


def test_streamed_copy_has_nothing_pending(known):
    known.take(status(kind=CopyKind.STREAMED), [], 20)

    assert (known.pending, known.is_full, known.is_owner) == ({}, False, False)


def test_claim_of_known_copy_has_its_epoch_and_kind(known):
    known.take(status(kind=CopyKind.ORIGIN, epoch=4, counted=(CopyId(PEER, 3),)), [], 20)

    assert known.claim == Claim(4, True, PEER, 1)
    assert known.counted == (CopyId(PEER, 3),)


def test_node_without_copy_says_so():
    assert (no_copy(ORIGIN, PEER).kind, no_copy(ORIGIN, PEER).last) == (CopyKind.NONE, True)


class _Topic:
    def __init__(self):
        self.changed = True
        self.deleted = False


def test_received_state_is_stored_after_checkpoint_and_sync_at_replicas():
    topic, sender = _Topic(), Sender(0, strict=False)
    one = Checkpointing(7, {topic})
    one.checkpointed(topic, [sender])
    assert not one.is_done

    topic.changed = False
    sender.sent, sender.synced = 100, 50
    one.checkpointed(topic, [sender])
    assert not one.is_done

    sender.synced = 100
    assert one.is_done


def test_state_of_deleted_topic_need_not_be_stored():
    topic = _Topic()
    one = Checkpointing(7, {topic})
    topic.deleted = True

    assert one.is_done


def exchanges_after_failover():
    """The new owner's exchange with the returned origin, and the origin's with it."""
    site = site_of(2)
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.kill(1)
    site.advance(40)
    site.start(1)
    site.advance(8)
    one, other = site.nodes[1], site.nodes[2]
    return site, log_of(other, one).exchanges[one.identity], log_of(one, one).exchanges[other.identity]


def test_state_is_acknowledged_when_peer_has_checkpoint_of_it():
    site, there, _ = exchanges_after_failover()
    (copy,) = [one for one in log_of(site.nodes[2], site.nodes[1]).copies if one.is_owner]
    finish(site.nodes[2])
    site.nodes[2].checkpoint()
    assert not there.has_state_of(copy)

    site.advance(5)
    assert copy.is_gone


def test_peer_that_was_asked_has_answered_with_complete_status():
    site, there, here = exchanges_after_failover()
    there.request_full_state()
    assert not there.answered
    log_of(site.nodes[1], site.nodes[1]).send_status(here, site.nodes[1].now)

    site.advance(2)
    assert there.answered
