"""A connection between two nodes: handshake, silence, acknowledgements, refusals."""

import pytest

from nsqd.replication.frames import Ack, Ping, Refuse
from nsqd.replication.framing import FrameReader, encode
from nsqd.replication.link import LinkState, silence_ns
from tests.campaign.replication.node import SECOND
from tests.unit.nsqd.replication.small_site import site_of


@pytest.fixture
def site():
    return site_of(2)


@pytest.fixture
def pair(site):
    """Both ends of a connection that node 1 has made."""
    (line,) = [one for one in site.lines if one.connector == 1]
    return line.near, line.far


def frames_of(link, now):
    return list(FrameReader(1 << 27).feed(b"".join(link.flush(now))))


def test_both_nodes_prefer_the_same_connection(site):
    preferred = [(line.near.is_preferred, line.far.is_preferred) for line in site.lines]

    assert sorted(preferred) == [(False, False), (True, True)]


def test_silent_peer_is_gone_after_fifteen_seconds(site, pair):
    near, _ = pair
    near.tick(near.heard_ns + 15 * SECOND)
    assert near.is_up

    near.tick(near.heard_ns + 15 * SECOND + 1)
    assert (near.state, near.reason) == (LinkState.CLOSED, "the peer is silent")


@pytest.mark.parametrize(("failover", "silence"), [(1, 2), (5, 2.5), (10, 5), (30, 15), (600, 15)])
def test_silent_peer_is_gone_before_its_replicas_take_over(failover, silence):
    assert silence_ns(failover * SECOND) == silence * SECOND


def test_handshake_has_to_end_within_ten_seconds(site):
    link = site.nodes[1].link(connector=True, expected=site.nodes[2].identity)
    now = site.nodes[1].now
    link.tick(now + 10 * SECOND)
    assert not link.is_closed

    link.tick(now + 10 * SECOND + 1)
    assert link.reason == "the handshake was not finished in time"


def test_idle_connection_sends_ping_every_half_second(site, pair):
    near, far = pair
    now = site.nodes[1].now + SECOND
    for link in (near, far):
        link.flush(now)
        link.sender.sent_ns = now
        link.tick(now + SECOND // 2 - 1)
        assert frames_of(link, now) == []
        link.tick(now + SECOND // 2)
        assert Ping() in frames_of(link, now)


def test_bad_frame_ends_connection_with_refusal(site, pair):
    _, far = pair
    far.receive(b"\x05\x00\x00\x00\xff\x00\x00\x00\x00", site.nodes[2].now)
    refusals = [one for one in frames_of(far, 0) if isinstance(one, Refuse)]

    assert (far.is_closed, far.refused) == (True, Refuse.BAD_FRAME)
    assert [one.code for one in refusals] == [Refuse.BAD_FRAME]
    assert site.nodes[2].replication.state.refusals["bad_frame"] == 1


def test_refusal_of_peer_is_not_counted_as_an_own_one(site, pair):
    near, _ = pair
    near.receive(encode(Refuse(Refuse.DISK, "no room")), site.nodes[1].now)

    assert (near.is_closed, near.refused_by_peer, near.refused) == (True, True, Refuse.DISK)
    assert site.nodes[1].replication.state.refusals == {}


def test_bytes_behind_unfinished_job_are_not_acknowledged(site, pair):
    _, far = pair
    now = site.nodes[2].now
    far.receive(b"", now)
    far.flush(now)
    before = far._acknowledged[0]
    far.unacknowledged.append(before)
    far.receive(encode(Ping()), now)
    assert not [one for one in frames_of(far, now) if isinstance(one, Ack)]

    far.unacknowledged.remove(before)
    far.receive(b"", now)
    (ack,) = [one for one in frames_of(far, now) if isinstance(one, Ack)]
    assert ack.written == before + len(encode(Ping()))


def test_later_connection_ends_earlier_one(site, pair):
    near, _ = pair
    site.lines = [line for line in site.lines if line.near is not near]
    site.choose()
    site.settle()

    assert near.is_closed
    assert near.reason == "the peer has connected again"


def test_closed_connection_takes_no_more_frames(site, pair):
    near, _ = pair
    near.end("enough")
    near.receive(encode(Refuse(Refuse.DISK, "no room")), site.nodes[1].now)
    near.send(Ping())

    assert (near.reason, near.refused, near.flush(0)) == ("enough", 0, [])
