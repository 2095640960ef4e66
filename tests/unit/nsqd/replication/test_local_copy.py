"""A copy on this node, and the jobs on its files."""

import pytest

from nsqd.log.gaps import EVERYTHING
from nsqd.replication.copies import Copies
from nsqd.replication.frames import CopyKind
from nsqd.replication.local_copy import DeleteTopicOfCopy, DropCopy, LocalCopy, OpenCopy, PromoteCopy
from tests.campaign.replication.node import DATA
from tests.unit.nsqd.replication.small_site import TOPIC, copies_of, publish, site_of

ME, OWNER = b"m" * 16, b"w" * 16


class _Link:
    def __init__(self):
        self.unacknowledged = [5]
        self.reason = ""

    def end(self, reason):
        self.reason = reason


@pytest.fixture
def node():
    """A node with a replica of one message, whose owner is gone."""
    site = site_of(2)
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.kill(1)
    return site.nodes[2]


@pytest.fixture
def copy(node):
    origin = next(iter(node.replication.logs.keys() - {node.identity}))
    (found,) = copies_of(node, origin)
    return found


def open_copy(node, copy):
    job = OpenCopy(copy, node.replication.copies, node.data, node.broker)
    job.run(node.disk)
    return job


def test_kind_follows_from_record_and_stream(node, copy):
    assert copy.kind == CopyKind.REPLICA
    copy.is_open = True
    assert copy.kind == CopyKind.OPEN
    copy.is_streamed = True
    assert (copy.kind, copy.has_state) == (CopyKind.STREAMED, False)
    assert copy.record is not None
    copy.record.promoted = True
    assert (copy.kind, copy.is_owner) == (CopyKind.PROMOTED, True)
    assert LocalCopy(node.identity, node.identity).kind == CopyKind.ORIGIN


def test_old_messages_are_held_back_while_holders_are_asked():
    copy = LocalCopy(ME, ME)
    copy.old_ends, copy.asks_until_ns = {TOPIC: 7}, 100

    assert copy.suspended_ranges(TOPIC) == [(0, 7)]
    assert copy.suspended_ranges("later") == []
    assert (copy.asks(99), copy.asks(100)) == (True, False)


def test_everything_is_held_back_while_the_copy_is_transferred():
    copy = LocalCopy(ME, ME)
    copy.is_transferring = True

    assert copy.suspended_ranges(TOPIC) == [(0, EVERYTHING)]


def test_opened_copy_has_the_topics_of_its_owner(node, copy):
    job = open_copy(node, copy)

    assert (list(job.found), job.failed) == ([TOPIC], {})
    assert copy.record.opened


def test_topic_that_cannot_be_read_delays_no_other(node, copy):
    record = copy.record
    node.disk.make_folder(record.path / "bad.topic")
    log = record.path / "bad.topic" / "00000001.log"
    node.disk.replace(log, b"NSQLOG\xff\n" + bytes(56), durable=True)
    job = open_copy(node, copy)

    assert list(job.found) == [TOPIC]
    assert list(job.failed) == ["bad"]


def test_promoted_copy_is_found_as_such_by_the_next_start(node, copy):
    PromoteCopy(copy, node.replication.copies, 3).run(node.disk)
    (record,) = [one for one in Copies(node.disk, DATA).scan() if one.origin == copy.origin]

    assert (record.promoted, record.epoch) == (True, 3)


def test_dropped_copy_is_not_found_by_the_next_start(node, copy):
    DropCopy(copy, node.replication.copies, []).run(node.disk)

    assert [one for one in Copies(node.disk, DATA).scan() if one.origin == copy.origin] == []


def test_copy_whose_folder_was_never_made_can_be_dropped(node):
    copies = node.replication.copies
    copy = LocalCopy(ME, node.identity, copies.new(ME, OWNER))
    DropCopy(copy, copies, []).run(node.disk)

    assert copy.record.is_dropped


@pytest.mark.parametrize(("below", "is_there"), [(0, True), (1 << 62, False)])
def test_deleted_topic_of_a_copy_stays_if_it_has_later_messages(node, copy, below, is_there):
    DeleteTopicOfCopy(copy, node.replication.copies, TOPIC, below, _Link(), 5).run(node.disk)

    assert (TOPIC in node.replication.copies.topics(copy.record)) is is_there
