"""Logs that were handed over to a keeper: given out at once, in which order, and when their copies go."""

import pytest

from nsqd.replication.carrier import Carrier
from nsqd.replication.for_good import ForGood
from nsqd.replication.inherited import Inherited, NoteForGood
from nsqd.replication.serving import CopyPhase
from tests.unit.nsqd.replication.test_carrier import AFTER, HOME, Keeper

NOTE = ForGood(1, "n1:4150", 5)


@pytest.fixture
def keeper():
    return Keeper()


def again(keeper):
    """The process begins anew."""
    keeper.carrier = Carrier(keeper.node.broker, keeper.shelf, keeper.shelf, AFTER, keeper.said.append)
    keeper.carrier.look(keeper.node.now_ns)
    return keeper.carrier


def test_a_log_that_was_handed_over_is_given_out_at_once_after_each_start(keeper):
    keeper.shelf.given = NOTE
    carrier = again(keeper)

    keeper.tick()

    assert [one.phase for one in carrier] == [CopyPhase.CARRIED]


def test_its_home_is_not_taken_back_and_another_is():
    inherited = Inherited(Keeper().shelf)
    assert inherited.not_back(HOME) == ""

    inherited.noted(NoteForGood(None, HOME, NOTE, None))

    assert inherited.not_back(HOME) == (
        f"the messages of {HOME.hex()} were handed over to this nsqd, which has them for good"
    )
    assert inherited.not_back(bytes(16)) == ""
    inherited.forget(HOME)
    assert inherited.not_back(HOME) == ""


def test_of_two_copies_the_newest_is_opened_first(keeper):
    keeper.shelf.files[2] = {"t": (100, [b"a", b"b", b"c", b"d"], {"c": []})}
    keeper.shelf.given = NOTE
    carrier = again(keeper)

    keeper.tick()
    assert [(one.serving.appointment, one.phase) for one in carrier.of(HOME)] == [
        (2, CopyPhase.CARRIED),
        (1, CopyPhase.KEPT),
    ]
    keeper.tick()

    assert {one.phase for one in carrier} == {CopyPhase.CARRIED}
    # The older one leaves it all to the newer one.
    assert keeper.node.channel().siblings[0].depth == 4
    assert keeper.node.channel().siblings[1].depth == 0


def test_when_nobody_is_owed_anything_all_copies_go(keeper):
    keeper.shelf.files[2] = {"t": (100, [b"a", b"b", b"c"], {"c": []})}
    keeper.shelf.given = NOTE
    carrier = again(keeper)
    keeper.tick()
    keeper.tick()
    for channel in carrier.of(HOME)[0].topics["t"].channels.values():
        channel.empty()

    for _ in range(5):
        keeper.tick(3)

    assert list(carrier) == []
    assert sorted(keeper.shelf.removed) == [1, 2]


def test_a_copy_of_which_somebody_is_owed_something_stays(keeper):
    keeper.shelf.given = NOTE
    carrier = again(keeper)
    for _ in range(5):
        keeper.tick(3)

    assert [one.phase for one in carrier] == [CopyPhase.CARRIED]


def test_what_was_handed_on_is_not_given_out_again(keeper):
    keeper.shelf.given = NOTE
    carrier = again(keeper)
    keeper.tick()

    carrier.give_away(HOME)
    for _ in range(3):
        keeper.tick(3)

    assert list(carrier) == []
    assert not carrier.may_come(HOME)
