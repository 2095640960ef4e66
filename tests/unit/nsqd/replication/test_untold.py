"""Deleted topics that are remembered for keepers that are away."""

import random
from pathlib import Path

import pytest

from nsqd.replication import untold
from tests.support.simulated_disk import SimulatedDisk

DATA = Path("/data")
ME = b"m" * 16


def test_what_was_noted_is_known_after_a_power_cut():
    disk = SimulatedDisk(DATA)
    untold.save(disk, DATA, ME, {"t": {"a:1", "b:2"}})
    after = disk.after_power_cut(random.Random(1))

    assert untold.load(after, DATA, ME) == {"t": {"a:1", "b:2"}}


def test_a_copied_data_path_has_deleted_nothing():
    disk = SimulatedDisk(DATA)
    untold.save(disk, DATA, ME, {"t": {"a:1"}})

    assert untold.load(disk, DATA, b"o" * 16) == {}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"identity": 5}', b'{"identity":"' + ME.hex().encode() + b'"}']
)
def test_a_file_that_cannot_be_read_says_nothing(content):
    disk = SimulatedDisk(DATA)
    disk.replace(DATA / untold.FILE_NAME, content, durable=True)

    assert untold.load(disk, DATA, ME) == {}


def test_of_very_many_the_newest_are_remembered(monkeypatch):
    monkeypatch.setattr(untold, "MOST_UNTOLD", 2)
    disk = SimulatedDisk(DATA)
    untold.save(disk, DATA, ME, {name: {"a:1"} for name in "tuv"})

    assert list(untold.load(disk, DATA, ME)) == ["u", "v"]
