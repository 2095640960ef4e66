"""The stream of a log: new writes, catch-up, resuming, deleted topics."""

import errno
import random
from collections.abc import Callable

import pytest

from nsqd.replication.log_stream import ReplicaSettings
from tests.unit.nsqd.replication.replica_end import records
from tests.unit.nsqd.replication.stream_pair import StreamPair

_S = 1_000_000_000


def test_new_topic_is_in_sync_from_its_first_message(pair):
    pair.connect()
    pair.move()

    pair.origin.publish(b"one")

    assert pair.in_sync()


def test_older_topic_is_in_sync_after_snapshot(pair):
    pair.origin.channel()
    pair.origin.publish(b"one")
    pair.connect()
    pair.move()
    pair.origin.publish(b"two")
    assert not pair.in_sync()

    pair.origin.checkpoint()

    assert pair.in_sync()
    assert pair.stream.in_sync_topics == 0
    pair.move()
    assert pair.stream.in_sync_topics == 1


def test_checkpoint_from_before_stream_is_no_snapshot(pair):
    pair.origin.channel()
    pair.origin.publish(b"one")
    topic, store = pair.origin.topic(), pair.origin.store()
    job = store.checkpoints.start_job(topic, store.checkpoint_position(topic.log.next_seq))
    pair.origin.publish(b"two")
    pair.connect()
    pair.move()

    job.run(pair.origin.disk)
    store.checkpoints.end(job)
    pair.origin.primary.checkpointed(store, job)

    assert not pair.in_sync()
    pair.settle()
    assert pair.in_sync()


@pytest.mark.parametrize("is_killed", [False, True])
def test_stream_resumes_after_cut_or_kill_of_primary(pair, is_killed):
    pair.connect()
    pair.move()
    pair.origin.channel()
    for number in range(30):
        pair.origin.publish(b"%d" % number)
    if is_killed:
        pair.settle()
        pair.restart_origin(pair.origin.disk.killed())
    else:
        pair.cut(keep=777)
    pair.origin.publish(b"after that")
    pair.connect()
    pair.settle()

    assert pair.stream.resumed
    assert pair.copied() == pair.origin.files()
    assert len(records(pair.copies)) == 1


@pytest.mark.parametrize("is_away", [False, True])
def test_compacted_file_replaces_its_sources_in_copy(pair, is_away):
    pair.connect()
    pair.move()
    pair.origin.channel()
    seqs = [seq for number in range(60) for seq in pair.origin.publish(b"%d" % number * 40)]
    pair.settle()
    if is_away:
        pair.cut()
    compact(pair, seqs)
    if is_away:
        pair.connect()
    pair.settle()

    assert any(name.count(".") == 2 for name in pair.copied())
    assert pair.copied() == pair.origin.files()
    assert pair.stream.is_caught_up
    assert pair.stream.resumed is is_away


def compact(pair, seqs):
    """Finish two of three messages, and compact the log."""
    pair.origin.sync()
    topic = pair.origin.topic()
    finished = [seq for place, seq in enumerate(seqs[5:-5]) if place % 3]
    pair.origin.broker.finish_messages(topic, topic.channels["c"], finished)
    pair.origin.turn()
    pair.origin.sync()
    pair.origin.checkpoint()
    pair.origin.checkpoint()
    assert pair.origin.compact() > 0


def test_deleting_topic_while_it_is_read_keeps_connection(pair, monkeypatch):
    monkeypatch.setattr("nsqd.replication.topic_stream.PIECE_BYTES", 1000)
    for number in range(100):
        pair.origin.publish(b"%d" % number)
    pair.connect()
    while pair.sender.sent < 1500:
        pair.now += _S // 100
        pair.step()
    (job,) = pair.reads.take()

    pair.origin.delete()
    with pytest.raises(FileNotFoundError) as caught:
        job.run(pair.origin.disk)
    job.ended(caught.value, pair.now)
    pair.move()

    assert pair.stream.is_caught_up
    assert pair.reason == ""


def test_deleting_topic_while_replica_works_on_it_keeps_connection(pair):
    pair.connect()
    pair.move()
    for number in range(40):
        pair.origin.publish(b"%d" % number)
    pair.end.receive(b"".join(pair.sender.flush(pair.now)))
    jobs = pair.end.jobs()
    for job in jobs:
        job.run(pair.disk)
        pair.end.ended(job, None)
    seals = pair.end.jobs()
    pair.origin.delete()
    pair.origin.publish(b"of a later topic")
    pair.end.receive(b"".join(pair.sender.flush(pair.now)))
    more = pair.end.jobs()
    for job in [*more, *seals]:
        error = None
        try:
            job.run(pair.disk)
        except OSError as failed:
            error = failed
        pair.end.ended(job, error)
    pair.settle()

    assert pair.reason == ""
    assert pair.copied() == pair.origin.files()


def test_caught_up_means_acknowledged_as_durable(pair):
    pair.origin.channel()
    for number in range(100):
        pair.origin.publish(b"%d" % number)
    pair.connect()
    for _ in range(100):
        pair.work()
        if pair.stream._numbers[1].caught_up:
            break
        pair.step()
        pair.origin.checkpoint()
        pair.now += _S
    assert pair.stream.caught_up_topics == 0
    assert not pair.stream.is_caught_up

    pair.move()

    assert pair.stream.is_caught_up
    after = pair.disk.after_power_cut(random.Random(3))
    durable = {
        name: after.read_file(pair.record().path / "t.topic" / name)
        for name in after.names(pair.record().path / "t.topic")
    }
    files = pair.origin.files()
    assert durable.items() >= {name: files[name] for name in files if name.endswith(".log")}.items()


def test_append_that_is_too_long_for_frame_is_sent_by_catch_up(pair, monkeypatch):
    pair.connect()
    pair.move()
    pair.origin.publish(b"one")
    pair.settle()
    monkeypatch.setattr("nsqd.replication.log_stream.MAX_APPEND", 500)

    pair.origin.publish(b"x" * 1000)

    assert not pair.stream.is_caught_up
    pair.settle()
    assert pair.stream.is_caught_up
    assert pair.copied() == pair.origin.files()


def test_unreadable_file_delays_no_other_and_topic_is_not_caught_up(pair):
    for number in range(100):
        pair.origin.publish(b"%d" % number)
    pair.origin.disk.fail(errno.EIO, "read", "*00000002.log", times=None)
    pair.connect()
    pair.settle()
    pair.origin.disk.heal()

    missing = pair.origin.files().keys() - pair.copied().keys()
    assert missing == {"00000002.log"}
    assert not pair.stream.is_caught_up


def test_replica_that_does_not_keep_up_is_disconnected(pair, monkeypatch):
    monkeypatch.setattr("nsqd.replication.log_stream.MAX_LAG_BYTES", 10_000)
    pair.connect()
    pair.move()
    stream = pair.stream
    for _ in range(5):
        pair.origin.publish(b"x" * 3000)

    assert stream.problem == "the replica does not keep up"
    assert not pair.in_sync()
    assert pair.origin.primary.streams == ()


def test_files_removed_by_another_program_end_stream_and_stay_in_copy(pair):
    pair.connect()
    pair.move()
    pair.origin.channel()
    pair.origin.publish(b"one")
    pair.settle()
    old, whole = pair.record(), pair.copied()

    pair.origin.disk.remove_folder(pair.origin.store().segments.folder)
    pair.origin.store().appender.check_folder()
    assert pair.stream.problem
    pair.origin.publish(b"two")
    pair.connect()
    pair.settle()

    assert pair.copied("t", old) == whole
    assert pair.record() is not old


def test_many_topics_begin_a_few_at_a_time(pair, monkeypatch):
    monkeypatch.setattr("nsqd.replication.log_stream._STREAMS_PER_TURN", 2)
    for number in range(9):
        pair.origin.publish(b"one", name=f"t{number}")
    pair.connect()
    while not pair.stream.resumed and not pair.origin.primary.wants_checkpoint:
        pair.step()
    assert len(pair.origin.primary.wants_checkpoint) < 9
    # A topic that is written to does not wait.
    pair.origin.publish(b"two", name="t8")
    assert pair.origin.store("t8") in pair.origin.primary.wants_checkpoint
    pair.settle()

    assert pair.stream.is_caught_up
    assert all(pair.copied(f"t{number}") == pair.origin.files(f"t{number}") for number in range(9))


# --- resuming ---


def test_conflict_begins_new_copy_and_earlier_stays(pair):
    pair.connect()
    pair.move()
    pair.origin.publish(b"kept")
    pair.origin.sync()
    pair.settle()
    cut = pair.origin.disk.after_power_cut(random.Random(1))
    pair.origin.publish(b"lost")
    pair.settle()
    old, whole = pair.record(), pair.copied()

    pair.restart_origin(cut)
    pair.origin.publish(b"after")
    pair.connect()
    pair.settle()

    assert not pair.stream.resumed
    assert pair.record() is not old
    assert pair.copied() == pair.origin.files()
    assert b"lost" in b"".join(whole.values())
    assert pair.copied("t", old) == whole


def test_conflict_in_middle_of_file_begins_new_copy(pair):
    pair.connect()
    pair.move()
    pair.origin.channel()
    for body in (b"before" * 9, b"lost" * 9, b"behind" * 9):
        pair.origin.publish(body)
    pair.settle()
    old, whole = pair.record(), pair.copied()
    disk = pair.origin.disk.killed()
    name = pair.origin.store().segments[-1].path
    place = disk.read_file(name).index(b"lost")
    fd = disk.open_write(name)
    disk.write_at(fd, b"\0\0\0\0", place)
    disk.close(fd)

    pair.restart_origin(disk)
    pair.connect()
    pair.settle()

    assert not pair.stream.resumed
    assert pair.copied("t", old) == whole


def test_topic_that_primary_does_not_know_begins_new_copy(pair):
    pair.connect()
    pair.move()
    pair.origin.publish(b"one", name="t")
    pair.origin.publish(b"two", name="u")
    pair.settle()
    old = pair.record()
    pair.cut()
    pair.origin.delete("u")
    # The primary has forgotten the deletion, as after the loss of its node record.
    pair.deletions.clear()

    pair.connect()
    pair.settle()

    assert not pair.stream.resumed
    assert pair.copied() == pair.origin.files()
    assert pair.copied("u", old)


def test_rule_5_of_primary_begins_new_copy(pair, monkeypatch):
    pair.connect()
    pair.move()
    pair.origin.publish(b"one")
    pair.settle()
    pair.cut()
    asked = []
    monkeypatch.setattr(pair.origin.primary, "may_resume", lambda one: bool(asked.append(one)))

    pair.connect()
    pair.settle()

    assert asked == [pair.stream]
    assert not pair.stream.resumed
    assert len(records(pair.copies)) == 2


@pytest.mark.parametrize("seed", range(14))
@pytest.mark.parametrize("strict", [False, True])
def test_copy_equals_log_after_any_history(seed, strict):
    rng = random.Random(seed)
    pair = StreamPair(ReplicaSettings(replicas=1, strict=strict))
    waits: list[list[str]] = []
    acknowledged: dict[str, set[int]] = {"t": set(), "u": set()}

    def publish() -> None:
        name = rng.choice("tu")
        seqs = pair.origin.publish(b"%d" % rng.randrange(1 << 40) * rng.randint(1, 60), name=name)
        pending = pair.origin.primary.wait(pair.origin.store(name))
        results: list[str] = []

        def answered(result: str) -> None:
            results.append(result)
            if pair.sender is not None and not (pair.sender.closed or pair.sender.stalled):
                acknowledged[name].update(seqs)

        if pending is not None:
            pending.add(answered)
            waits.append(results)

    def restart_replica() -> None:
        pair.cut()
        is_kill = rng.random() < 0.5
        pair.restart_replica(pair.disk.killed() if is_kill else pair.disk.after_power_cut(rng))
        for name in pair.origin.broker.topics:
            if is_kill or strict:
                # Whatever was acknowledged and is still pending is in a copy.
                assert pair.readable(name) >= acknowledged[name] & pair.origin.pending(name)
            else:
                acknowledged[name].clear()

    def restart_origin() -> None:
        disk = pair.origin.disk
        pair.restart_origin(disk.killed() if rng.random() < 0.7 else disk.after_power_cut(rng))

    def delete() -> None:
        name = rng.choice("tu")
        if name in pair.origin.broker.topics:
            pair.origin.delete(name)
            acknowledged[name].clear()

    def tick() -> None:
        pair.now += rng.choice([0, _S // 10, _S])
        if pair.end is not None:
            pair.end.tick()

    def at_origin(what: str, *names: str) -> Callable[[], object]:
        return lambda: getattr(pair.origin, what)(*map(rng.choice, names))

    events = [publish] * 12 + [pair.step] * 10 + [pair.move] * 2 + [tick] * 3 + [pair.connect]
    events += [lambda: pair.cut(rng.randrange(4000)), restart_replica, restart_origin, delete]
    events += [at_origin("checkpoint")] * 3 + [at_origin("sync")] * 2
    events += [at_origin("channel", "ab", "tu"), at_origin("empty", "tu"), at_origin("compact", "tu")]
    for _ in range(150):
        rng.choice(events)()
    pair.connect()
    pair.settle()

    assert pair.reason == ""
    assert pair.stream.is_caught_up
    for name in pair.origin.broker.topics:
        assert pair.copied(name) == pair.origin.files(name)
    assert all(results == [""] for results in waits)
