"""Connections to appointed and to former keepers, with links that a test moves."""

import asyncio
from types import SimpleNamespace

import pytest

from nsqd.log.disk import Disk
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.choosing import Appointed, Candidate, KeeperPatience
from nsqd.replication.frames import Refuse
from nsqd.server.replication.connections import KeeperConnections

IDENTITY = bytes(16)


class Line:
    """The parts of a `Linking` that are used."""

    def __init__(self, _home, appointed, *_parts, tls, heard, visit):
        self.appointed, self.visit = appointed, visit
        self.heard = heard
        self.connection = None
        self.problem, self.refused = "not connected yet", 0
        self.over = False

    def up(self, *, leaves=False):
        self.problem = ""
        link = SimpleNamespace(keeper=object(), is_streamed_to=True, streams=list, keeper_leaves=leaves)
        self.connection = SimpleNamespace(link=link)

    def met(self): ...

    async def run(self):
        try:
            await asyncio.sleep(1e9)
        finally:
            self.over = True


class Says:
    def __init__(self):
        self.said = []

    def warning(self, text, *parts):
        self.said.append(text % parts)


class Home:
    def __init__(self):
        self.addresses, self.told = set(), 0
        self.gone = None

    def say_who_keeps(self):
        self.told += 1


class Kept:
    """One home with two keepers, of which one is a former one."""

    def __init__(self, path):
        self.path = path
        self.file = AppointmentsFile(Disk(), path, IDENTITY, print)
        known = self.file.appointments
        known.dismiss(known.appoint(Candidate("old:1")))
        known.appoint(Candidate("new:1"))
        self.home, self.log = Home(), Says()
        self.lines = {}
        self.connections = KeeperConnections(
            self.home, self.file, Disk(), self.log, None, readers=1, connect=self.connect
        )
        self.connections.keep_up()

    def connect(self, *parts, **more):
        line = Line(*parts, **more)
        self.lines[line.appointed.address] = line
        return line


@pytest.fixture
async def kept(tmp_path):
    found = Kept(tmp_path)
    await asyncio.sleep(0)
    yield found
    await found.connections.close()


def noted(path):
    file = AppointmentsFile(Disk(), path, IDENTITY, print)
    file.load()
    return file.appointments


async def test_whoever_is_appointed_is_connected_to_and_those_of_former_days_are_visited(kept):
    assert {address: line.visit for address, line in kept.lines.items()} == {"new:1": False, "old:1": True}
    assert kept.home.addresses == {"new:1"}
    assert [one.linking.appointed.address for one in kept.connections] == ["new:1"]


async def test_a_keeper_that_is_one_no_more_is_visited_on_another_connection(kept):
    first = kept.lines["new:1"]
    known = kept.file.appointments
    known.dismiss(known.current[0])

    kept.connections.keep_up()
    await asyncio.sleep(0)

    assert first.over
    assert kept.lines["new:1"].visit
    assert kept.home.addresses == set()


async def test_one_that_has_no_copies_any_more_is_left_when_it_is_not_heard(kept):
    kept.home.gone(Appointed(1, "old:1"), 1)
    # The keeper is being heard at this moment, so its connection does not end yet.
    await asyncio.sleep(0)
    assert not kept.lines["old:1"].over
    kept.connections.tick()
    await asyncio.sleep(0)

    assert kept.lines["old:1"].over
    assert noted(kept.path).former == []


async def test_the_word_of_a_keeper_counts_from_when_both_have_met_not_from_its_welcome(kept):
    line, (one,) = kept.lines["new:1"], kept.connections
    line.up()
    line.connection.link.is_streamed_to = False

    one.look()
    assert one.linked_s == 0

    line.connection.link.is_streamed_to = True
    one.look()
    assert one.linked_s > 0


async def test_who_a_keeper_is_is_noted(kept):
    kept.lines["new:1"].heard(Appointed(2, "new:1"), "ab")

    assert noted(kept.path).current == [Appointed(2, "new:1", "ab")]


async def test_what_cannot_be_noted_is_told_and_they_go_on(kept):
    kept.path.rmdir()

    kept.lines["new:1"].heard(Appointed(2, "new:1"), "ab")

    assert kept.file.appointments.current == [Appointed(2, "new:1", "ab")]
    assert "failed to note which keepers there are" in kept.log.said[0]
    kept.path.mkdir()


async def test_one_that_will_not_is_told_of_once_and_is_worn_out(kept):
    patience, line = KeeperPatience(100), kept.lines["new:1"]
    line.problem, line.refused = "the keeper refuses: its disk is nearly full", Refuse.NOT_WANTED

    assert [kept.connections.note_patience(patience, now) for now in (0, 1, 2)] == [True, False, False]
    assert patience.is_worn_out("new:1", 2)


async def test_for_one_that_is_away_another_is_looked_for_when_patience_ends(kept):
    patience = KeeperPatience(100)

    assert not kept.connections.note_patience(patience, 0)
    assert not patience.is_worn_out("new:1", 99)
    assert patience.is_worn_out("new:1", 100)


async def test_for_one_that_is_about_to_leave_another_is_looked_for_at_once(kept):
    patience, line = KeeperPatience(100), kept.lines["new:1"]
    line.up(leaves=True)

    assert kept.connections.note_patience(patience, 0)
    assert patience.is_worn_out("new:1", 0)

    # The keeper stays after all.
    line.up()
    assert not kept.connections.note_patience(patience, 1)
    assert not patience.is_worn_out("new:1", 1)


async def test_one_of_former_days_tries_nobody_s_patience(kept):
    kept.lines["old:1"].problem = "no answer within 5 s"
    patience = KeeperPatience(100)

    kept.connections.note_patience(patience, 0)
    kept.connections.note_patience(patience, 200)

    assert not patience.is_worn_out("old:1", 200)
