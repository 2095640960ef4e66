"""A copy on this node, and the jobs on its files."""

import pytest

from nsqd.log.gaps import EVERYTHING
from nsqd.replication.frames import CopyKind
from nsqd.replication.local_copy import LocalCopy
from tests.unit.nsqd.replication.replica_end import DATA
from tests.unit.nsqd.replication.small_site import TOPIC, copies_of, publish, site_of

ME = b"m" * 16


@pytest.fixture
def site():
    return site_of(2)


@pytest.fixture
def node(site):
    """A node with a replica of one message, whose owner is gone."""
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.kill(1)
    return site.nodes[2]


@pytest.fixture
def copy(node):
    origin = next(iter(node.replication.logs.keys() - {node.identity}))
    (found,) = copies_of(node, origin)
    return found


def test_kind_follows_from_record_and_stream(node, copy):
    assert copy.kind == CopyKind.REPLICA
    copy.is_open = True
    assert copy.kind == CopyKind.OPEN
    copy.is_streamed = True
    assert (copy.kind, copy.has_state) == (CopyKind.STREAMED, False)
    copy.promoted = True
    assert (copy.kind, copy.is_owner) == (CopyKind.PROMOTED, True)
    assert LocalCopy(node.identity, node.identity, 0, DATA).kind == CopyKind.ORIGIN


def test_old_messages_are_held_back_while_holders_are_asked():
    copy = LocalCopy(ME, ME, 0, DATA)
    copy.old_ends, copy.asks_until_ns = {TOPIC: 7}, 100

    assert copy.suspended_ranges(TOPIC) == [(0, 7)]
    assert copy.suspended_ranges("later") == []
    assert (copy.asks(99), copy.asks(100)) == (True, False)


def test_everything_is_held_back_while_the_copy_is_transferred():
    copy = LocalCopy(ME, ME, 0, DATA)
    copy.is_transferring = True

    assert copy.suspended_ranges(TOPIC) == [(0, EVERYTHING)]


def test_opened_copy_has_the_topics_of_its_owner(site, copy):
    site.advance(6)

    assert list(copy.topics) == [TOPIC]
    assert copy.opened


def test_topic_that_cannot_be_read_delays_no_other(site, node, copy):
    log = copy.path / "bad.topic" / "00000001.log"
    node.disk.make_folder(log.parent)
    node.disk.replace(log, b"NSQLOG\xff\n" + bytes(56), durable=True)
    site.advance(6)

    assert list(copy.topics) == [TOPIC]
    assert copy.unreadable == ["bad"]


@pytest.mark.parametrize(("below", "is_there"), [(0, True), (1 << 62, False)])
def test_deleted_topic_of_a_copy_stays_if_it_has_later_messages(node, copy, below, is_there):
    node.replication.copies.delete_topic(copy, TOPIC, below)

    assert (TOPIC in node.replication.copies.topics(copy)) is is_there
