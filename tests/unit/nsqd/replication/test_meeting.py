"""A home that comes back, on the real engine: what is told, and which node gives out what."""

import random

import pytest

from nsqd.replication.serving import CopyPhase
from tests.campaign.carried.histories import bodies_in
from tests.campaign.carried.node import SECOND
from tests.campaign.carried.site import CarryingSite
from tests.support.copied_site import settle


@pytest.fixture
def site(copied_site):
    return copied_site(2, messages=0)


def publish(site, count):
    oks = []
    for number in range(count):
        site.nodes[1].publish("t", b"%d" % number).tells.append(oks.append)
    site.settle()
    assert oks == [""] * count


def bodies(messages):
    return b"".join(body for _, body in messages)


def test_what_a_dead_node_was_told_ok_for_is_given_out_by_its_keeper(site):
    publish(site, 6)
    site.kill(1)
    site.advance(29)
    assert "t" not in site.nodes[2].broker.topics

    site.advance(3)
    reader = site.nodes[2].read("t", "c", 100)

    assert bodies(reader.take()) == b"012345"
    assert [message_id[:3] for message_id, _ in reader.has] == [b"004"] * 6


def test_a_topic_that_a_home_deletes_while_it_is_given_out_goes_though_the_home_dies_at_that(site):
    publish(site, 6)
    home, keeper = site.nodes[1], site.nodes[2]
    site.alone = {2}
    for line in list(site.lines):
        site.cut(line)
    site.advance(32)
    assert keeper.owed()["t", "c"] == 6
    home.data.delete(home.broker.topics["t"])
    home.broker.delete_topic("t")
    home.turn()

    site.alone.clear()
    site.choose()
    (line,) = [one for one in site.lines if one.home == 1]
    line.kept.receive(b"".join(line.link.flush(site.now)))
    line.link.receive(b"".join(line.kept.out), site.now)
    line.kept.receive(b"".join(line.link.flush(site.now)))
    site.kill(1)
    site.advance(40)

    assert keeper.owed().get(("t", "c"), 0) == 0
    assert keeper.broken == []
    assert [one.topics for one in keeper.carrier] in ([], [{}])


def test_who_keeps_nothing_for_anybody_has_nothing_to_look_at(site):
    home, keeper = site.nodes[1], site.nodes[2]
    alone = CarryingSite(1, random.Random(5), strict=False).nodes[1]

    assert alone.meeting.is_idle
    assert not keeper.meeting.is_idle
    site.kill(1)
    assert not keeper.meeting.is_idle
    assert home.meeting is not None


def test_the_home_learns_what_was_finished_and_leaves_what_is_in_flight(site):
    publish(site, 6)
    site.kill(1)
    site.advance(32)
    keeper = site.nodes[2]
    reader = keeper.read("t", "c", 4)
    reader.take()
    for message in reader.has[:2]:
        keeper.answer(reader, message, "FIN")
    reader.take()

    site.start(1)
    mine = site.nodes[1].read("t", "c", 100)
    settle(site, 3)
    first = bodies(mine.take())
    keeper.ready(reader, 100)

    # Of six messages two are finished and four in flight.
    assert first == b""
    assert len(reader.has) == 4
    assert [one.phase for one in keeper.carrier] == [CopyPhase.RETURNING]
    for message in list(reader.has):
        keeper.answer(reader, message, "FIN" if message[1] != b"5" else "REQ")
    settle(site, 3)
    assert bodies(mine.take()) == b"5"
    assert [one.phase for one in keeper.carrier] == [CopyPhase.KEPT]


def test_after_its_return_the_home_goes_on_with_the_same_copy(site):
    publish(site, 6)
    site.kill(1)
    site.advance(32)
    keeper = site.nodes[2]
    reader = keeper.read("t", "c", 3)
    for message in reader.take():
        keeper.answer(reader, message, "FIN")
    keeper.leave(reader)
    site.start(1)
    settle(site, 6)
    publish(site, 2)

    site.kill(1)
    site.advance(32)
    again = keeper.read("t", "c", 100)

    # Three of six messages were finished, and two were published later.
    assert sorted(bodies(again.take())) == sorted(b"34501")
    assert len(list(keeper.carrier)) == 1


def test_a_home_that_was_only_cut_off_is_told_too(site):
    publish(site, 4)
    site.alone = {1}
    for line in list(site.lines):
        site.cut(line)
    site.advance(32)
    keeper = site.nodes[2]
    reader = keeper.read("t", "c", 2)
    for message in reader.take()[:2]:
        keeper.answer(reader, message, "FIN")
    keeper.leave(reader)

    site.alone.clear()
    settle(site, 4)

    assert site.nodes[1].coming.learned == 2
    assert site.nodes[1].owed() == {("t", "c"): 2}
    assert site.now > 32 * SECOND


def test_a_channel_that_was_deleted_at_the_keeper_is_given_nothing_of_before_at_home(site):
    publish(site, 4)
    site.kill(1)
    site.advance(32)
    keeper = site.nodes[2]
    keeper.broker.delete_channel(keeper.broker.topics["t"], "c")
    keeper.turn()
    keeper.checkpoint()

    site.start(1)
    settle(site, 4)

    assert site.nodes[1].owed() == {("t", "c"): 0}


def test_what_a_home_lost_is_given_out_by_the_copy_that_has_it_and_that_goes_then(site):
    publish(site, 8)
    whole = len(bodies_in(site.disks[1]))
    cuts = (site.disks[1].after_power_cut(random.Random(seed)) for seed in range(200))
    lost = next(disk for disk in cuts if len(bodies_in(disk)) < whole)
    site.end(1, lost)
    site.start(1)
    settle(site, 20)
    seen = b""
    for _ in range(4):
        for node in site.nodes.values():
            if "t" in node.broker.topics:
                reader = node.read("t", "c", 100)
                new = reader.take()
                seen += bodies(new)
                for message in new:
                    node.answer(reader, message, "FIN")
                node.leave(reader)
        settle(site, 10)

    assert sorted(set(seen)) == sorted(b"01234567")
    # Only the copy to which the home writes is left.
    assert [one.serving.appointment for one in site.nodes[2].carrier] == [2]
    assert any("is not needed any more" in text for text in site.nodes[2].said)


def test_a_home_whose_keeper_is_about_to_leave_has_another_before_that_is_gone(copied_site):
    site = copied_site(3)
    (old,) = site.nodes[1].file.appointments.current
    leaves = int(old.address[1])
    site.nodes[leaves].broker.draining = True
    settle(site, 10)

    (new,) = site.nodes[1].file.appointments.current
    assert new.address != old.address
    assert site.nodes[1].home.under_copied() == 0
    # The older copy was removed at the leaving keeper.
    assert site.nodes[leaves].keeping.copies.appointments(site.nodes[1].identity) == []
    site.kill(leaves)
    site.kill(1)
    site.advance(35)
    reader = site.nodes[int(new.address[1])].read("t", "c", 100)
    assert bodies(reader.take()) == b"01234"


def test_a_home_with_no_other_keeper_stays_with_the_one_that_is_about_to_leave(site):
    publish(site, 3)
    before = list(site.nodes[1].file.appointments.current)
    site.nodes[2].broker.draining = True
    settle(site, 10)

    assert site.nodes[1].file.appointments.current == before
    assert site.nodes[1].home.under_copied() == 0
