"""Faults around a query, case by case: each message is stored once, or the query says why not.

docs/evidence/pipelines-faults.md has the table. These tests do what Spark's engine does, without a JVM; those
that need a JVM are in test_spark.py and test_standalone.py.
"""

import json
import os
import re
import shutil
import signal
from collections import Counter

import pytest

from pyspark_nsq.source.batch_reader import NsqBatchReader
from pyspark_nsq.source.errors import DataLossError
from tests.pipelines.broken import COUNT, SMALL_FILES, Case, batch, end, numbered, spoil_body
from tests.pipelines.conftest import bounds, depth
from tests.pipelines.mini import Query
from tests.support.nsqd_http import channel_stats
from tests.support.waiting import wait_until
from tests.support.wire import Wire, req

pytestmark = pytest.mark.slow

LOST = r"has lost messages of topic 't': sequences \d+ to \d+ \(removed\)"
# Missing messages are named when a batch is planned, or when it is read if they were removed in between.
NAMED = (
    r"\d+ messages may be missing|has lost messages|what lies between is gone"
    r"|does not have the messages \d+ to \d+ of topic"
)


@pytest.fixture
def case(cluster):
    return Case(cluster)


# --- an nsqd starts again


@pytest.mark.parametrize("end_of_life", ["stop", "kill"])
@pytest.mark.parametrize(
    ("state", "dropped"),
    [
        ("caught up", False),
        ("caught up", True),
        ("behind", False),
        ("fresh", True),
        ("batch", False),
        ("batch", True),
    ],
)
def test_nsqd_restart_loses_nothing(cluster, end_of_life, state, dropped):
    case = Case(cluster, 1)
    (nsqd,) = case.nsqds
    case.publish()
    if state == "caught up":
        assert case.query.run() == ""
    elif state == "behind":
        assert case.query.run(limit=300, batches=2) == ""
    log_end = bounds(nsqd, "t")["end"]
    if dropped:
        case.finish(nsqd, "archive")
        case.published.clear()
        case.query.stored = {number: [] for number in case.query.stored}
    end(nsqd, end_of_life)
    nsqd.start()
    # Sequences continue far behind those of before.
    assert bounds(nsqd, "t")["end"] > log_end + COUNT
    case.publish(COUNT, 10)
    if dropped:
        wait_until(lambda: bounds(nsqd, "t")["first"] >= log_end, "the file is dropped")
        wait_until(lambda: len(case.files(nsqd)) == 1, "the file is gone")
    case.nodes.listed(nsqd, "t")

    if state == "batch":
        assert Counter(batch(case)) == case.published
        return
    fresh = {"startingOffsets": "earliest", "channel": "fresh"} if state == "fresh" else {}
    assert case.query.run(**fresh) == ""
    case.exact()


@pytest.mark.parametrize("frozen", [False, True], ids=["killed", "frozen"])
def test_nsqd_killed_or_frozen_in_backlog_is_named_then_read(case, frozen):
    case.publish()
    assert case.query.run(limit=500, batches=1) == ""
    nsqd = case.nsqds[0]
    if frozen:
        os.kill(nsqd.pid, signal.SIGSTOP)
    else:
        end(nsqd)
    error = case.query.run(requestTimeout="0.5")
    if frozen:
        os.kill(nsqd.pid, signal.SIGCONT)
    else:
        nsqd.start()

    assert re.match(rf"nsqd {nsqd.http_address} does not answer: Get ", error)
    assert case.query.run() == ""
    case.exact()


# --- the driver dies


@pytest.mark.parametrize("step", ["planned", "stored"])
def test_driver_death_repeats_batch(case, step):
    case.publish()
    for _ in range(3):
        assert case.query.run(limit=300, die=step) == "killed"
    assert case.query.run(limit=300) == ""

    case.exact()
    assert [depth(nsqd, "t") for nsqd in case.nsqds] == [0, 0]


# --- an nsqd at another address


def moved(case, nsqd):
    """Kill *nsqd* and start an nsqd on its data path at another address; return that one."""
    again = case.nodes.cluster.nsqd(SMALL_FILES)
    again.stop()
    end(nsqd)
    again.flags = [flag.replace(str(again.folder), str(nsqd.folder)) for flag in again.flags]
    return again.start()


@pytest.mark.parametrize("where", ["caught up", "in a backlog", "planned", "stored and not noted"])
def test_nsqd_with_new_address_is_the_same(case, where):
    case.publish()
    if where == "caught up":
        assert case.query.run() == ""
    elif where == "in a backlog":
        assert case.query.run(limit=400, batches=2) == ""
    else:
        assert case.query.run(limit=400, die=where.split()[0]) == "killed"
    case.publish(COUNT, 100)
    old = case.nsqds[0].http_address
    new = moved(case, case.nsqds[0])
    case.nodes.listed(new, "t")

    assert case.query.run() == ""
    case.exact()
    assert depth(new, "t") == 0
    # Its rows keep the earlier name of the nsqd, so that nsqd and sequence still identify one message.
    assert json.loads(case.query.offsets[-1])["addresses"] == {f"t@{old}": new.http_address}
    assert new.http_address != old


def test_nsqds_that_exchange_addresses_are_distinguished(case):
    case.publish()
    assert case.query.run(limit=400, batches=2) == ""
    first, second = case.nsqds
    for nsqd in case.nsqds:
        end(nsqd, "stop")
    first.ports, second.ports = second.ports, first.ports
    for nsqd in case.nsqds:
        nsqd.start()
        case.nodes.listed(nsqd, "t")

    assert case.query.run() == ""
    case.exact()
    exchanged = {
        f"t@{first.http_address}": second.http_address,
        f"t@{second.http_address}": first.http_address,
    }
    assert json.loads(case.query.offsets[-1])["addresses"] == exchanged


# --- nsqds come and go


def test_nsqd_that_joins_without_nsqlookupd_is_read_from_its_log_start(case):
    case.publish()
    assert case.query.run() == ""
    end(case.nodes.lookupd)
    joined = case.nodes.cluster.nsqd(SMALL_FILES)
    case.open(joined, "other")
    joined.post("/mpub?topic=t", b"\n".join(numbered(joined, 0)))
    others = list(case.query.bodies)
    case.published.update(numbered(joined, 0))

    assert case.query.run() == ""
    assert case.query.bodies == others

    case.nodes.lookupd.start()
    case.nodes.listed(joined, "t")
    for nsqd in case.nsqds:
        case.nodes.listed(nsqd, "t")
    assert case.query.run() == ""
    # The query has created its channel, so nsqd retains its backlog.
    case.finish(joined, "other")
    assert case.query.run() == ""
    case.exact()


def test_messages_consumed_before_nsqd_joined_are_in_warning(case, caplog):
    case.publish()
    assert case.query.run() == ""
    end(case.nodes.lookupd)
    joined = case.nodes.cluster.nsqd(SMALL_FILES)
    case.open(joined, "other")
    joined.post("/mpub?topic=t", b"\n".join(numbered(joined, 0)))
    case.finish(joined, "other")
    wait_until(
        lambda: not bounds(joined, "t")["extents"] or len(case.files(joined)) == 1, "files are dropped"
    )
    # The newest file is not removed before it is large; a restart ends it.
    joined.restart()
    wait_until(lambda: not bounds(joined, "t")["extents"], "all files are dropped")
    case.nodes.lookupd.start()
    case.nodes.listed(joined, "t")
    case.publish(COUNT, 10, [joined])

    assert [case.query.run(), case.query.run()] == ["", ""]
    case.exact()
    warning = f"topic t of nsqd {joined.http_address} joins the query with 10 messages; {COUNT} earlier ones"
    assert warning in caplog.text


def test_lost_nsqd_is_named_until_it_is_forgotten(case):
    case.publish()
    assert case.query.run() == ""
    gone, stays = case.nsqds
    end(gone, "stop")
    case.publish(COUNT, 10, [stays])

    assert re.match(rf"nsqd {gone.http_address} does not answer: ", case.query.run())
    assert case.query.run(forgetNsqds=gone.http_address) == ""
    assert case.query.run() == ""
    case.exact()


def test_query_continues_without_nsqlookupd(case, caplog):
    case.publish()
    assert case.query.run(limit=400, batches=1) == ""
    end(case.nodes.lookupd)

    assert case.query.run() == ""
    case.exact()
    assert "no nsqlookupd answered the search for topic 't'" in caplog.text


# --- other users of topic and channel


def deleted_topic(_case, nsqd):
    nsqd.post("/topic/delete?topic=t")


def recreated_topic(case, nsqd):
    nsqd.post("/topic/delete?topic=t")
    case.open(nsqd)
    case.publish(COUNT, 10, [nsqd])


def emptied_channel(_case, nsqd):
    nsqd.post("/channel/empty?topic=t&channel=archive")


def recreated_channel(_case, nsqd):
    nsqd.post("/channel/delete?topic=t&channel=archive")
    nsqd.post("/channel/create?topic=t&channel=archive")


def removed_log_files(case, nsqd):
    nsqd.stop()
    for path in case.files(nsqd):
        path.unlink()
    nsqd.start()


def erased_data_path(case, nsqd):
    nsqd.stop()
    for path in nsqd.folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    nsqd.start()
    case.open(nsqd)
    case.publish(COUNT, 10, [nsqd])


def older_copy_of_data_path(case, nsqd):
    nsqd.stop()
    copy = nsqd.folder.with_name("copy")
    shutil.copytree(nsqd.folder, copy)
    nsqd.start()
    case.publish(COUNT, 500, [nsqd])
    nsqd.stop()
    shutil.rmtree(nsqd.folder)
    copy.rename(nsqd.folder)
    nsqd.start()
    case.publish(2 * COUNT, 10, [nsqd])


OTHER_DATA = "there is another data path now: its data was replaced"
EMPTIED = r"an operator emptied it or made it again; \d+ messages may be missing"


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (deleted_topic, "has no topic 't' any more"),
        (recreated_topic, r"is kept from \d+ on only: what lies between is gone"),
        (emptied_channel, EMPTIED),
        (recreated_channel, EMPTIED),
        (removed_log_files, LOST),
        (erased_data_path, OTHER_DATA),
        (older_copy_of_data_path, OTHER_DATA),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_loss_is_named(case, fault, sentence):
    case.publish()
    assert case.query.run(limit=400, batches=1) == ""
    fault(case, case.nsqds[0])

    assert re.search(sentence, case.query.run())
    case.none_twice()


@pytest.mark.parametrize("others", [False, True], ids=["no channel keeps the rest", "others keep it"])
def test_channel_deleted_while_query_was_down_is_named(case, others):
    case.publish()
    assert case.query.run(limit=400, batches=1) == ""
    nsqd = case.nsqds[0]
    if others:
        nsqd.post("/channel/create?topic=t&channel=other&start=earliest")
    nsqd.post("/channel/delete?topic=t&channel=archive")

    assert re.match(f"channel 'archive' was removed from nsqd {nsqd.http_address}, ", case.query.run())
    # The query does not silently create the channel again.
    assert depth(nsqd, "t") is None
    case.none_twice()

    assert case.query.run(failOnDataLoss="false") == ""
    case.none_twice()
    if others:
        case.exact()


def test_channel_deleted_before_the_first_batch_is_named(case):
    case.publish()
    case.nsqds[0].post("/channel/create?topic=t&channel=other&start=earliest")
    assert case.query.run(limit=400, die="planned") == "killed"
    case.nsqds[0].post("/channel/delete?topic=t&channel=archive")
    case.query.run()
    error = case.query.run()

    assert "another query or a consumer uses the channel, or an operator emptied it or made it again" in error
    case.none_twice()


@pytest.mark.parametrize("restarts", [False, True])
def test_dead_letters_sent_back_to_another_channel_are_no_loss(cluster, restarts):
    case = Case(cluster, 1)
    (nsqd,) = case.nsqds
    case.publish()
    case.policy(max_attempts=1)
    with Wire(("127.0.0.1", nsqd.tcp_port)) as wire:
        wire.subscribe("t", "billing", ready=3)
        bodies = numbered(nsqd, COUNT, 3)
        case.nodes.publish(nsqd, "t", *bodies)
        case.published.update(bodies)
        wire.send(*[req(message, 0) for message in wire.messages(3)])
        wait_until(lambda: counted(nsqd, "billing", "dead_count") == 3, "they are dead letters")
    assert case.query.run() == ""
    case.exact()
    if restarts:
        # They are the first that get a number then, which lies far behind where the query stands.
        nsqd.restart()
        case.nodes.listed(nsqd, "t")
    end = bounds(nsqd, "t")["end"]
    nsqd.post("/dead_letters/send_back?topic=t.billing.dead")
    wait_until(lambda: depth(nsqd, "t", "billing") == 3, "they are back")

    if not restarts:
        assert case.query.run() == ""
    case.finish(nsqd, "billing")
    nsqd.restart()
    case.publish(COUNT + 3, 300)
    wait_until(lambda: bounds(nsqd, "t")["first"] > end, "the files are removed")
    assert case.query.run() == ""
    case.exact()


def test_two_queries_on_one_channel_are_named(case):
    case.publish()
    second = Query(case.nodes, "t", {"retryTimeout": "1"})
    assert case.query.run(limit=400, batches=1) == ""
    assert second.run(limit=400, batches=1) == ""
    assert case.query.run() == ""

    assert "another query or a consumer uses the channel" in second.run()
    case.exact()
    case.none_twice(second)


@pytest.mark.parametrize("order", ["from the front", "out of order"])
def test_consumer_of_channel_takes_no_message_unnoticed(case, order):
    case.publish()
    # The query has read 200 messages of each nsqd, and the channel has acknowledged none of them.
    assert case.query.run(limit=400, batches=1) == ""
    with Wire(("127.0.0.1", case.nsqds[0].tcp_port)) as wire:
        wire.subscribe("t", "archive", ready=300)
        taken = wire.messages(300)
        for message in taken if order == "from the front" else taken[250:]:
            wire.send(b"FIN %b\n" % message.id)
        finished = 300 if order == "from the front" else 50
        wait_until(lambda: pending(case.nsqds[0]) == COUNT - finished, "they are finished")
        error = case.query.run()

    if order == "from the front":
        assert "another query or a consumer uses the channel" in error
        assert "100 messages may be missing" in error
        case.none_twice()
    else:
        assert error == ""
        case.exact()


# --- files


@pytest.mark.parametrize(
    ("state", "which"),
    [("fresh", 0), ("fresh", -1), ("behind", 1), ("behind", -1), ("batch", 0), ("batch", 1)],
)
def test_missing_log_file_is_named(case, which, state):
    case.publish()
    nsqd = case.nsqds[0]
    if state == "behind":
        assert case.query.run(limit=100, batches=1) == ""
    nsqd.stop()
    case.files(nsqd)[which].unlink()
    nsqd.start()
    case.nodes.listed(nsqd, "t")

    if state == "batch":
        with pytest.raises(Exception, match=LOST):
            batch(case)
        return
    assert re.search(
        f"nsqd {nsqd.http_address} {LOST}",
        case.query.run(startingOffsets="earliest"),
    )
    assert case.query.run(failOnDataLoss="false") == ""
    case.none_twice()
    assert COUNT < len(case.query.bodies) < 2 * COUNT


@pytest.mark.parametrize(
    ("which", "end_of_life"), [(1, "stop"), (-1, "kill")], ids=["an older", "the newest"]
)
def test_damaged_byte_is_named(case, which, end_of_life):
    case.publish()
    assert case.query.run(limit=100, batches=1) == ""
    nsqd = case.nsqds[0]
    getattr(nsqd, end_of_life)()
    # The newest file may hold notes alone.
    spoil_body([path for path in case.files(nsqd) if b"." * 40 in path.read_bytes()][which], last=which == 1)
    nsqd.start()
    case.nodes.listed(nsqd, "t")

    assert re.search(r"sequences \d+ to \d+ \(damaged\)", case.query.run())
    assert case.query.run(failOnDataLoss="false") == ""
    case.none_twice()
    assert COUNT < len(case.query.bodies) < 2 * COUNT


def test_log_tail_lost_in_power_cut_is_named(case):
    case.publish()
    assert case.query.run(die="planned") == "killed"
    nsqd = case.nsqds[0]
    nsqd.kill()
    path = case.files(nsqd)[-1]
    os.truncate(path, path.stat().st_size - 1500)
    nsqd.start()
    case.publish(COUNT, 10, [nsqd])

    # nsqd itself knows of the loss, and says damaged, if its checkpoint came before the kill.
    named = r"has lost messages of topic 't': .*\((planned, not there|removed|damaged)\)"
    assert re.search(named, case.query.run())
    case.none_twice()


# --- policies


def counted(nsqd, channel, name):
    """A statistic of a channel."""
    return channel_stats(nsqd, "t", channel)[name]


def pending(nsqd):
    return sum(counted(nsqd, "archive", name) for name in ("depth", "in_flight_count"))


def test_retention_removes_nothing_that_query_reads(case):
    case.policy(retain_time="100ms")
    for nsqd in case.nsqds:
        case.open(nsqd, "other")
    case.publish()
    began = [bounds(nsqd, "t")["first"] for nsqd in case.nsqds]
    assert case.query.run(limit=1200, batches=2) == ""
    for nsqd, first in zip(case.nsqds, began, strict=True):
        case.finish(nsqd, "other")
        # Messages that both channels have finished are removed, and the rest stays.
        wait_until(lambda nsqd=nsqd, first=first: bounds(nsqd, "t")["first"] > first, "files are dropped")
    case.publish(COUNT, 500)

    assert case.query.run() == ""
    case.exact()


def remove_front(nsqd):
    """Let the only channel finish the first half of the log; return where the log starts after that."""
    before = bounds(nsqd, "t")
    middle = (before["first"] + before["end"]) // 2
    nsqd.post(f"/channel/commit?topic=t&channel=archive&sequence={middle}")
    wait_until(lambda: bounds(nsqd, "t")["first"] > before["first"], "files are removed")
    return bounds(nsqd, "t")["first"]


def read_while_front_is_removed(case, after_batches=0, **options):
    """Plan a batch read and read it; after so many record batches, nsqd removes messages at the front.

    Returns the rows, and where each log starts then.
    """
    reader = NsqBatchReader(case.nodes.parsed("t", channel="", minPartitions="8", **options))
    partitions = reader.partitions()
    assert len(partitions) >= 8
    rows, starts = [], {}
    for number, found in enumerate(one for part in partitions for one in (None, *reader.read(part))):
        if number == after_batches:
            starts = {nsqd.http_address: remove_front(nsqd) for nsqd in case.nsqds}
        rows += found.to_pylist() if found else []
    return rows, starts


@pytest.mark.parametrize(
    ("options", "after_batches"),
    [({}, 0), ({}, 2), ({"startingTimestamp": "2020-01-01"}, 0)],
    ids=["before the first row", "between two partitions", "from a timestamp"],
)
def test_batch_read_begins_at_log_start_when_retention_removes_messages(case, options, after_batches):
    case.publish()

    rows, starts = read_while_front_is_removed(case, after_batches, **options)

    found = Counter(row["body"] for row in rows)
    assert found - case.published == Counter()
    assert 0 < found.total() < case.published.total()
    # A message is missing only if nsqd has removed it.
    for nsqd in case.nsqds:
        start, end = starts[nsqd.http_address], bounds(nsqd, "t")["end"]
        mine = [row["sequence"] for row in rows if row["nsqd"] == nsqd.http_address]
        assert [one for one in mine if one >= start] == list(range(start, end))


def test_batch_read_from_given_position_names_removed_messages(case):
    case.publish()
    positions = {nsqd.http_address: bounds(nsqd, "t")["first"] for nsqd in case.nsqds}

    with pytest.raises(DataLossError, match="the first of them were removed there since the batch was"):
        read_while_front_is_removed(case, startingOffsets=json.dumps(positions))


@pytest.mark.parametrize("step", ["planned", "stored"])
def test_messages_dropped_by_max_depth_are_named(case, step):
    case.policy(channel="archive", max_depth=500, when_full="drop-oldest")
    case.publish(0, 400)
    assert case.query.run(limit=100, die=step) == "killed"
    case.publish(400, 600)

    for _ in range(2):
        error = case.query.run()
        if error:
            break
    assert re.search(NAMED, error)
    case.none_twice()
    assert case.query.run(failOnDataLoss="false") == ""
    case.none_twice()


def test_expired_messages_are_read_or_named(case):
    case.publish(0, 400)
    assert case.query.run(limit=100, batches=1) == ""
    # The policy is not set earlier, because the time until a query's first batch depends on the machine.
    case.policy(channel="archive", ttl="200ms")
    expired = "expired_count"
    wait_until(lambda: all(counted(nsqd, "archive", expired) > 0 for nsqd in case.nsqds), "messages expire")
    case.publish(400, 10)
    error = case.query.run()

    if error:
        assert re.search(NAMED, error)
    else:
        # The missing messages expired before the query planned a batch with them, and nsqd counted them.
        missing = case.published - Counter(case.query.bodies)
        assert missing.total() <= sum(counted(nsqd, "archive", expired) for nsqd in case.nsqds)
    case.none_twice()


# --- messages of other kinds


def test_deferred_message_is_read_when_published(case):
    (nsqd, _) = case.nsqds
    for number in range(20):
        body = b"deferred %d" % number
        nsqd.post(f"/pub?topic=t&defer={3_600_000 if number % 2 else 0}", body)
        case.published[body] += 1
    case.nodes.listed(nsqd, "t")
    assert counted(nsqd, "archive", "deferred_count") == 10

    assert case.query.run() == ""
    case.exact()
    assert depth(nsqd, "t") == 0


def test_body_of_60_megabytes_is_read(cluster):
    case = Case(cluster, 1, "--max-msg-size=70000000")
    (nsqd,) = case.nsqds
    body = b"x" * 60_000_000
    for number in range(2):
        nsqd.post("/pub?topic=t", b"%d" % number + body)
        case.published[b"%d" % number + body] += 1
    case.nodes.listed(nsqd, "t")

    assert case.query.run() == ""
    case.exact()
