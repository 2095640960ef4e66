"""replication.json: what it holds, and what a crash leaves of it."""

import errno
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from xxhash import xxh3_64_hexdigest

from nsqd.replication.frames import Holder
from nsqd.replication.records import (
    FILE_NAME,
    DamagedRecord,
    Deletion,
    NodeRecord,
    NodeRecordFile,
)
from nsqd.replication.startup import OldCopies, refuse_old_copies
from tests.support.simulated_disk import SimulatedDisk

PATH = Path("/data")
ME, ALICE, BOB = b"m" * 16, b"a" * 16, b"b" * 16
NOW_S = 1_800_000_000
FULL = NodeRecord(
    ME,
    incarnation=7,
    token=b"T" * 16,
    previous_token=b"S" * 16,
    epoch=3,
    highest_epoch=(1 << 63) + 1,
    replicas=(Holder(ALICE, "alice:4150"), Holder(b"n" * 16, "named:4150")),
    holders=(Holder(ALICE, "alice:4150"), Holder(BOB, "[::1]:4150")),
    deletions=(Deletion("orders", 1 << 62, frozenset((ALICE, BOB))),),
)


@pytest.fixture
def disk():
    return SimulatedDisk(PATH)


def load(disk, identity=ME):
    return NodeRecordFile.load(disk, PATH, identity)


def draw(letters):
    drawn = iter(letters)
    return lambda size: next(drawn) * size


# --- the file ---


def test_node_record_is_empty_without_file(disk):
    assert load(disk).record == NodeRecord(ME)


def test_node_record_is_loaded_as_it_was_saved(disk):
    load(disk).save(FULL)

    assert load(disk).record == FULL
    assert load(disk.after_power_cut(random.Random(1))).record == FULL


def test_node_record_chains_tokens_of_its_starts(disk):
    starts = []
    for letter in (b"1", b"2", b"3"):
        file = load(disk)
        file.begin_incarnation(draw([letter]))
        starts.append((file.record.incarnation, file.record.previous_token, file.record.token))

    assert starts == [(1, bytes(16), b"1" * 16), (2, b"1" * 16, b"2" * 16), (3, b"2" * 16, b"3" * 16)]


def test_node_record_of_another_identity_does_not_count(disk):
    load(disk).save(FULL)

    assert load(disk, identity=b"c" * 16).record == NodeRecord(b"c" * 16)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"{}",
        b'{"version": 2}',
        b'{"version": 2, "check": ""}',
        b"[" * 5000,
        bytes(512),
    ],
)
def test_node_record_refuses_damaged_file(disk, content):
    disk.replace(PATH / FILE_NAME, content, durable=True)

    with pytest.raises(DamagedRecord, match=r"^/data/replication.json is damaged: "):
        load(disk)


def test_node_record_refuses_file_with_one_changed_character(disk):
    load(disk).save(FULL)
    content = disk.read_file(PATH / FILE_NAME)
    for at in range(len(content)):
        changed = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        disk.replace(PATH / FILE_NAME, changed, durable=True)
        try:
            found = load(disk).record
        except DamagedRecord:
            continue
        # White space between values may change.
        assert found == FULL


@pytest.mark.parametrize(
    "change",
    [{"epoch": -1}, {"epoch": "3"}, {"identity": "6d"}, {"holders": [["6d", "a"]]}, {"token": 7}],
)
def test_node_record_refuses_values_of_another_kind(disk, change):
    load(disk).save(FULL)
    fields = json.loads(disk.read_file(PATH / FILE_NAME)) | change
    del fields["check"]
    check = xxh3_64_hexdigest(json.dumps(fields, sort_keys=True).encode())
    disk.replace(PATH / FILE_NAME, json.dumps(fields | {"check": check}).encode(), durable=True)

    with pytest.raises(DamagedRecord, match=r"is no|fromhex"):
        load(disk)


def test_node_record_refuses_later_version(disk):
    disk.replace(PATH / FILE_NAME, json.dumps({"version": 3, "check": ""}).encode(), durable=True)

    with pytest.raises(DamagedRecord, match="has version 3, this nsqd knows 2"):
        load(disk)


def test_node_record_that_cannot_be_read_is_not_absent(disk):
    load(disk).save(FULL)
    disk.fail(errno.EIO, "read")

    with pytest.raises(OSError, match="Input/output"):
        load(disk)


# --- crashes ---


def test_node_record_is_old_or_new_one_after_crash_at_any_step(disk):
    file = load(disk)
    file.save(FULL)
    later = SimulatedDisk(volume=disk.volume.copy())
    new = replace(FULL, epoch=4)
    load(later).save(new)
    found = []
    for _, volume in later.history():
        killed = SimulatedDisk(volume=volume.copy())
        found.append(load(killed).record)
        for seed in range(20):
            assert load(killed.after_power_cut(random.Random(seed))).record in {FULL, new}

    assert found[0] == FULL
    assert found[-1] == new
    assert set(found) == {FULL, new}
    # A power cut after the last step takes nothing back.
    for seed in range(20):
        assert load(later.after_power_cut(random.Random(seed))).record == new


def test_node_record_in_memory_stays_when_any_call_fails(disk):
    load(disk).save(FULL)
    probe = disk.killed()
    load(probe).save(replace(FULL, epoch=4))
    assert len(probe.calls) > 4
    failed = 0
    for call in range(len(probe.calls)):
        broken = disk.killed()
        broken.fail(errno.EIO, call=call)
        try:
            file = load(broken)
        except OSError:
            continue
        try:
            file.save(replace(FULL, epoch=4))
        except OSError:
            failed += 1
            assert file.record == FULL
            broken.heal()
            assert load(broken).record.epoch in {3, 4}
            # It can be saved again.
            file.save(replace(FULL, epoch=5))
            assert load(broken.after_power_cut(random.Random(call))).record.epoch == 5
        broken.forget_descriptors()

    assert failed >= 4


# --- holders and deletions ---


HOLDERS = (Holder(ALICE, ""), Holder(BOB, ""))


def test_node_record_without_holders_keeps_no_deletion():
    assert NodeRecord(ME).with_deletion("orders", 9) == NodeRecord(ME)


def test_node_record_keeps_deletion_until_each_holder_acknowledged_it():
    record = NodeRecord(ME, holders=HOLDERS)
    record = record.with_deletion("orders", 9).with_deletion("bills", 5)

    # An acknowledgement of an earlier deletion does not count.
    assert record.with_acknowledged(ALICE, "orders", 8) == record
    record = record.with_acknowledged(ALICE, "orders", 9)
    assert record.deletions[0] == Deletion("orders", 9, frozenset((BOB,)))
    record = record.with_acknowledged(BOB, "orders", 9)
    assert [one.topic for one in record.deletions] == ["bills"]


def test_node_record_keeps_no_deletion_for_forgotten_holder():
    record = NodeRecord(ME, holders=HOLDERS[:1]).with_deletion("orders", 9)

    assert record.without_holder(ALICE) == NodeRecord(ME)


def test_node_record_keeps_the_last_deletion_of_topic():
    record = NodeRecord(ME, holders=HOLDERS[:1]).with_deletion("orders", 9)

    assert record.with_deletion("orders", 20).deletions == (Deletion("orders", 20, frozenset((ALICE,))),)


# --- copies of a development version ---


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["carried", "carried/one"], "are in carried/: start that version, let /carried become empty, or"),
        (["appointments.json"], "are named in appointments.json: .* or remove the file$"),
        (["for-good.json", "handed-over.json"], "for-good.json, handed-over.json: .* or remove the files$"),
    ],
)
def test_copies_of_development_version_are_refused(disk, names, text):
    refuse_old_copies(disk, PATH)
    for name in names:
        disk.make_folder(PATH / name)

    with pytest.raises(OldCopies, match=text):
        refuse_old_copies(disk, PATH)
