"""A node on a copy of another node's data path."""

from nsqd.engine.numbering import Sequences
from nsqd.replication.frames import CopyKind
from nsqd.replication.startup import promote_copied_log
from nsqd.storage.reservation import Reservation
from tests.campaign.replication.faults import copied
from tests.campaign.replication.node import DATA, Killed
from tests.unit.nsqd.replication.small_site import copies_of, finish, publish, site_of


def test_topics_of_copied_data_path_are_promoted_copy():
    site = site_of(2)
    publish(site.nodes[1], b"one")
    site.advance(2)
    origin = site.nodes[1].identity
    disk = copied(site.disks[1])
    site.kill(1)
    site.kill(2)
    site.add(disk)
    site.advance(4)

    node = site.nodes[3]
    assert node.identity != origin
    assert [copy.kind for copy in copies_of(node, origin)] == [CopyKind.PROMOTED]
    assert finish(node) == [b"one"]


def test_copy_of_node_that_runs_yields_and_is_dropped():
    site = site_of(2)
    publish(site.nodes[1], b"one")
    site.advance(2)
    site.add(copied(site.disks[1]))
    site.advance(30)

    assert copies_of(site.nodes[3], site.nodes[1]) == []
    assert finish(site.nodes[3]) == []
    assert finish(site.nodes[1]) == [b"one"]


def promoted_until(disk, last):
    """Promote the copied log; the process is killed at that call of the disk. Returns what it leaves."""

    def end(call):
        if call.number == last:
            raise Killed(3)

    disk.before_call = end
    try:
        promote_copied_log(disk, DATA, Reservation(disk, DATA, Sequences()))
    except Killed:
        return disk.killed()
    return None


def test_start_on_copied_data_path_may_end_at_any_call():
    site = site_of(2)
    publish(site.nodes[1], b"one", b"two")
    site.advance(2)
    origin = site.nodes[1].identity
    source = site.disks[1]
    site.kill(1)
    site.kill(2)
    count = 0
    while True:
        disk = copied(source)
        left = promoted_until(disk, len(disk.calls) + count)
        if left is None:
            break
        site.add(left)
        site.advance(4)
        (number,) = site.nodes
        assert finish(site.nodes[number]) == [b"one", b"two"]
        assert copies_of(site.nodes[number], origin)
        site.kill(number)
        count += 1
    assert count > 15
