"""A topic's log by position over HTTP: bounds, ranges and commit, also after a crash."""

import json

import pytest

from nsqclient.wire.frames import FRAME_MESSAGE, FrameParser
from nsqclient.wire.message import MessageRecord
from tests.support.waiting import wait_until

MASK = (1 << 54) - 1


@pytest.fixture
def own_nsqd(cluster):
    """An nsqd that the test may kill."""
    return cluster.nsqd()


def publish(nsqd, topic, *bodies):
    nsqd.post(f"/mpub?topic={topic}", b"\n".join(bodies))


def bounds(nsqd, topic):
    return nsqd.get(f"/log/bounds?topic={topic}")


def fetch(nsqd, topic, start, end):
    """Status and messages of one range."""
    status, body = nsqd.request("GET", f"/log/range?topic={topic}&start={start}&end={end}")
    if status != 200:
        return status, json.loads(body)["message"]
    frames = FrameParser().feed(body)
    assert {frame_type for frame_type, _ in frames} <= {FRAME_MESSAGE}
    return status, [MessageRecord.decode(data) for _, data in frames]


def commit(nsqd, topic, sequence, channel="ch"):
    return nsqd.request("POST", f"/channel/commit?topic={topic}&channel={channel}&sequence={sequence}")[0]


def depth(nsqd, topic):
    (found,) = nsqd.get(f"/stats?format=json&topic={topic}")["topics"]
    return {channel["channel_name"]: channel["depth"] for channel in found["channels"]}


@pytest.fixture
def three(nsqd, topic):
    """The bounds of a topic with a channel and three messages."""
    nsqd.create(topic, "ch")
    publish(nsqd, topic, b"a", b"b", b"c")
    return bounds(nsqd, topic)


def test_bounds_of_unpublished_topic_are_empty(nsqd, topic):
    nsqd.post(f"/topic/create?topic={topic}")
    found = bounds(nsqd, topic)

    assert found["first"] == found["end"]
    assert (found["extents"], found["channels"]) == ([], {})


def test_bounds_name_what_is_there_and_where_each_channel_is(nsqd, topic, three):
    first = three["first"]

    assert three["end"] == first + 3
    assert three["extents"] == [[first, first + 3]]
    assert three["channels"] == {"ch": {"acknowledged": first}}


def test_range_is_read_as_often_as_one_likes_and_changes_nothing(nsqd, topic, three):
    first = three["first"]
    once, again = fetch(nsqd, topic, first + 1, first + 3), fetch(nsqd, topic, first + 1, first + 3)

    assert once == again
    assert [(message.body, int(message.id, 16) & MASK, message.attempts) for message in once[1]] == [
        (b"b", first + 1, 1),
        (b"c", first + 2, 1),
    ]
    assert depth(nsqd, topic) == {"ch": 3}


@pytest.mark.parametrize(
    ("start", "end", "status", "message"),
    [(0, 4, 416, "INVALID_RANGE"), (2, 1, 416, "INVALID_RANGE"), (-1, 1, 410, "SEQUENCE_GONE")],
)
def test_missing_range_is_refused(nsqd, topic, three, start, end, status, message):
    assert fetch(nsqd, topic, three["first"] + start, three["first"] + end) == (status, message)


def test_commit_moves_channel_and_lower_one_does_not_move_it_back(nsqd, topic, three):
    first = three["first"]
    for sequence, left in ((first + 2, 1), (first + 1, 1), (first + 3, 0), (first + 3, 0)):
        assert commit(nsqd, topic, sequence) == 200
        assert depth(nsqd, topic) == {"ch": left}
    assert commit(nsqd, topic, first + 4) == 416
    assert commit(nsqd, topic, first, channel="other") == 404


def test_range_reads_the_same_after_crash(own_nsqd):
    own_nsqd.create("t", "ch")
    publish(own_nsqd, "t", b"a", b"b")
    before = bounds(own_nsqd, "t")
    read = fetch(own_nsqd, "t", before["first"], before["end"])
    own_nsqd.kill()
    own_nsqd.start()
    publish(own_nsqd, "t", b"c")
    after = bounds(own_nsqd, "t")

    assert fetch(own_nsqd, "t", before["first"], before["end"]) == read
    assert after["first"] == before["first"]
    assert after["extents"] == [[before["first"], before["end"]], [after["end"] - 1, after["end"]]]
    assert after["end"] - 1 > before["end"]
    assert [message.body for message in fetch(own_nsqd, "t", before["first"], after["end"])[1]] == [
        b"a",
        b"b",
        b"c",
    ]


def test_removed_range_stays_gone_after_crash(own_nsqd):
    own_nsqd.create("t", "ch")
    for _ in range(2):
        publish(own_nsqd, "t", *(b"x" * 100_000 for _ in range(8)))
    found = bounds(own_nsqd, "t")
    end = found["end"]
    commit(own_nsqd, "t", end)
    wait_until(lambda: bounds(own_nsqd, "t")["first"] == end, "the segment is dropped")

    assert bounds(own_nsqd, "t")["extents"] == []
    assert fetch(own_nsqd, "t", end - 1, end) == (410, "SEQUENCE_GONE")

    for number in range(2):
        own_nsqd.kill()
        own_nsqd.start()
        publish(own_nsqd, "t", b"%d" % number)

    after = bounds(own_nsqd, "t")
    assert after["first"] == end
    assert after["gaps"] == []
    assert [message.body for message in fetch(own_nsqd, "t", end, after["end"])[1]] == [b"0", b"1"]


def test_bounds_name_data_path_in_every_life(own_nsqd):
    own_nsqd.post("/topic/create?topic=t")
    before = bounds(own_nsqd, "t")["data_path"]
    own_nsqd.kill()
    own_nsqd.start()

    assert len(before) == 32
    assert bounds(own_nsqd, "t")["data_path"] == before


# --- a channel from the earliest that is kept


def test_channel_from_earliest_gets_backlog_of_other_channel(nsqd, topic, three):
    nsqd.post(f"/channel/create?topic={topic}&channel=late")
    nsqd.post(f"/channel/create?topic={topic}&channel=all&start=earliest")

    assert depth(nsqd, topic) == {"ch": 3, "late": 0, "all": 3}
    assert bounds(nsqd, topic)["channels"]["all"] == {"acknowledged": three["first"]}


def test_backlog_of_channel_from_earliest_survives_kill(own_nsqd, topic):
    own_nsqd.create(topic, "ch")
    publish(own_nsqd, topic, b"a", b"b", b"c")
    first = bounds(own_nsqd, topic)["first"]
    own_nsqd.post(f"/channel/create?topic={topic}&channel=all&start=earliest")
    commit(own_nsqd, topic, first + 3)
    own_nsqd.kill()
    own_nsqd.start()

    assert depth(own_nsqd, topic)["all"] == 3
    status, messages = fetch(own_nsqd, topic, first, first + 3)
    assert (status, [message.body for message in messages]) == (200, [b"a", b"b", b"c"])
