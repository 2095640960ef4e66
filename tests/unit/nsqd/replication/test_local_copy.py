"""A copy on this node, and the jobs on its files."""

import pytest

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


def test_opened_copy_has_topics_of_its_owner(site, copy):
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
def test_deleted_topic_of_copy_stays_if_it_has_later_messages(node, copy, below, is_there):
    node.replication.copies.delete_topic(copy, TOPIC, below)

    assert (TOPIC in node.replication.copies.topics(copy)) is is_there
