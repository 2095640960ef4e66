"""Logs that were handed over to a keeper: in which order they are given out, and when their copies go."""

import dataclasses

import pytest

from nsqd.replication import handed_over
from nsqd.replication.carrier import Carrier
from nsqd.replication.choosing import Candidate
from nsqd.replication.durable import make_folders
from nsqd.replication.for_good import ForGood
from nsqd.replication.frames import Hello, Refuse
from nsqd.replication.inherited import Inherited, NoteForGood
from nsqd.replication.serving import CopyPhase
from tests.support.copied_site import has, settle
from tests.unit.nsqd.replication.test_carrier import AFTER, HOME, Keeper

NOTE = ForGood(1, "n1:4150", 5)


@pytest.fixture
def keeper():
    return Keeper()


def again(keeper):
    """Start the process again."""
    keeper.carrier = Carrier(keeper.node.broker, keeper.shelf, keeper.shelf, AFTER, keeper.said.append)
    keeper.carrier.look(keeper.node.now_ns)
    return keeper.carrier


def test_a_log_that_was_handed_over_is_given_out_at_once_after_each_start(keeper):
    keeper.shelf.given = NOTE
    carrier = again(keeper)

    keeper.tick()

    assert [one.phase for one in carrier] == [CopyPhase.CARRIED]


def test_before_a_log_is_given_out_after_a_start_those_who_were_given_copies_of_it_are_asked(keeper):
    make_folders(keeper.shelf.disk, keeper.shelf.folder_of(HOME))
    file = keeper.carrier.successors.file(HOME)
    file.appointments.last = 1
    file.appointments.appoint(Candidate("n3:4150"))
    file.save()
    keeper.shelf.given = NOTE
    carrier = again(keeper)
    keeper.tick()
    assert carrier.waits(keeper.copy())

    carrier.fellows.silent(HOME, "n3:4150")

    assert not carrier.waits(keeper.copy())


def hello(appointment=3, *, identity=HOME, stands_in=False):
    """The first frame of a home, or of a keeper that speaks for it."""
    return Hello(identity, 3, appointment, "n3:4150", stands_in=stands_in)


def test_its_home_is_not_taken_back_and_another_is():
    inherited = Inherited(Keeper().shelf)
    assert inherited.not_back(hello()) == ""

    inherited.noted(NoteForGood(None, HOME, NOTE, None))

    assert inherited.not_back(hello()) == (
        f"the messages of {HOME.hex()} were handed over to this nsqd, which has them for good"
    )
    assert inherited.not_back(hello(identity=bytes(16))) == ""
    inherited.forget(HOME)
    assert inherited.not_back(hello()) == ""


def test_a_home_whose_log_a_keeper_gave_away_is_taken_back_and_the_keeper_is_not():
    inherited = Inherited(Keeper().shelf)

    inherited.noted(NoteForGood(None, HOME, ForGood(1, "n1:4150", 5, by_keeper=True), None))

    assert inherited.not_back(hello()) == ""
    assert "for good" in inherited.not_back(hello(stands_in=True))


@pytest.mark.parametrize(
    ("left", "brings", "may_come"),
    [
        # Copy 1, which was handed over, is removed here, and the keeper still has a later copy.
        ([], 3, True),
        # The keeper had begun to bring copy 3 before.
        ([3], 3, True),
        # A copy that is still here must go first.
        ([1], 3, False),
        ([1, 3], 3, False),
        # Copy 1 was noted, and the keeper has not heard that: the refusal says so, also to a visit (0).
        ([], 1, False),
        ([1], 1, False),
        ([], 0, False),
    ],
)
def test_a_keeper_may_bring_a_copy_where_no_other_is_left(left, brings, may_come):
    shelf = Keeper().shelf
    shelf.files = {appointment: {} for appointment in left}
    inherited = Inherited(shelf)
    inherited.noted(NoteForGood(None, HOME, NOTE, None))

    assert (not inherited.not_back(hello(brings, stands_in=True))) is may_come


def test_what_a_home_has_handed_over_a_keeper_that_brings_more_does_not_give_back_to_it():
    inherited = Inherited(Keeper().shelf)
    keeper = hello(stands_in=True)
    assert inherited.by_keeper(HOME, keeper)
    assert not inherited.by_keeper(HOME, hello())

    inherited.noted(NoteForGood(None, HOME, NOTE, None))

    assert not inherited.by_keeper(HOME, keeper)


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
    # The older copy leaves all messages to the newer one.
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
    assert not carrier.may_be_needed(HOME)


# --- on simulated nodes ---


@pytest.fixture
def site(copied_site):
    return copied_site(2)


def line_of(site):
    (line,) = [one for one in site.lines if one.home == 1]
    return line


def whole(site):
    """Offer the log to the taker until the taker has all of it on its disk."""
    line = line_of(site)
    line.link.offer(1000)
    settle(site)
    position = line.link.sync()
    settle(site)
    assert line.link.has_said_all
    assert line.link.out.synced >= position
    return line


def test_what_was_handed_over_is_given_out_at_once_and_its_home_hears_of_it(site):
    line = whole(site)

    line.link.hand_over(line.link.appointed.number)
    site.settle()
    site.nodes[2].advance(site.now)
    taker_says = line.kept
    site.kill(1)
    site.advance(1)

    assert taker_says.closing
    assert has(site.nodes[2]) == b"01234"


def test_a_home_that_ends_as_it_says_so_is_not_waited_for(site):
    line = whole(site)
    line.link.hand_over(line.link.appointed.number)
    line.kept.receive(b"".join(line.link.flush(site.now)))
    # The connection ends before the taker has noted the hand-over.
    site.kill(1)

    site.advance(2)

    assert has(site.nodes[2]) == b"01234"


def test_a_home_that_ends_before_the_taker_hears_is_carried_as_any_that_is_gone(site):
    whole(site)
    site.kill(1)

    site.advance(20)
    assert "t" not in site.nodes[2].broker.topics
    site.advance(12)

    assert has(site.nodes[2]) == b"01234"


def test_a_home_that_ends_before_it_has_noted_anything_goes_on_with_all_of_it(site):
    whole(site)
    site.kill(1)
    site.start(1)
    settle(site, 8)

    assert has(site.nodes[1]) == b"01234"
    assert "t" not in site.nodes[2].broker.topics


def test_a_copy_that_is_not_whole_is_not_taken(site):
    line = line_of(site)
    line.kept.copied.filled.clear()

    line.link.hand_over(line.link.appointed.number)
    site.move()
    settle(site, 1)

    assert "not whole" in line.kept.reason


def test_an_offer_that_is_too_large_or_too_late_is_refused(site):
    line = line_of(site)
    site.nodes[2].keeping.too_much = lambda size: f"{size} are too many" if size > 10 else ""

    line.link.offer(11)
    site.settle()

    assert line.kept.reason == "11 are too many"


def test_one_that_wants_to_leave_goes_elsewhere_when_its_taker_does_so_too(site):
    line = whole(site)
    site.nodes[2].keeping.unwilling = lambda: "the keeper is draining"

    site.nodes[2].advance(site.now)

    assert line.kept.reason == "the keeper is draining"


# --- what a keeper hands on while the home is away ---


@pytest.fixture
def handed_on(copied_site):
    """While the first node was away, its keeper handed its log on to the other node."""
    site = copied_site(3)
    (keeper,) = site.nodes[1].file.appointments.current
    giver = int(keeper.address[1])
    site.kill(1)
    settle(site, 35)
    site.leave(giver, f"n{5 - giver}:4150")
    for _ in range(30):
        settle(site, 1)
        if site.nodes[giver].leaving.state == "handed over":
            break
    return site, giver, site.nodes[5 - giver]


def test_a_home_that_comes_back_has_its_log_again_and_a_keeper_in_who_had_it(handed_on):
    site, giver, taker = handed_on
    identity = site.identities[1]
    assert taker.keeping.copies.for_good(identity).by_keeper
    reader = taker.read("t", "c", 2)
    for message in list(reader.take()):
        assert taker.answer(reader, message, "FIN")
    taker.leave(reader)
    site.lose_disk(giver)

    site.start(1)
    site.nodes[1].file.appointments.current = []
    settle(site, 20)

    assert taker.keeping.copies.for_good(identity) is None
    # Messages finished at the taker stay finished, and new messages are copied to it.
    assert len(has(site.nodes[1])) == 3
    assert site.nodes[1].home.under_copied() == 0


def test_a_keeper_that_has_given_away_what_its_home_came_for_need_not_say_so_any_more(handed_on):
    site, _, taker = handed_on
    site.start(1)
    settle(site, 20)
    link = next(line.kept for line in site.lines if line.home == 1 and line.keeper == taker.number)

    no = taker.keeping.taken(dataclasses.replace(link.hello, address="n9:4150", stands_in=True))

    assert no.code == Refuse.HOME_IS_HERE


def test_a_home_that_comes_while_it_is_handed_on_keeps_its_keeper_waiting_for_nothing(copied_site):
    site = copied_site(3)
    (keeper,) = site.nodes[1].file.appointments.current
    giver = int(keeper.address[1])
    site.kill(1)
    settle(site, 35)
    site.slow.add(5 - giver)
    site.leave(giver, f"n{5 - giver}:4150")
    site.advance(1)
    assert site.nodes[giver].leaving.state == "filling"

    site.start(1)
    settle(site, 40)

    assert site.nodes[giver].leaving.state == "handed over"
    assert len(has(site.nodes[1])) == 5


# --- one that has missed that nobody is owed any of it ---


@pytest.fixture
def missed(copied_site):
    """The first node's log was handed over and finished; the taker's keeper has not heard that."""
    site = copied_site(3)
    (keeper,) = site.nodes[1].file.appointments.current
    taker, other = int(keeper.address[1]), 5 - int(keeper.address[1])
    site.leave(1, keeper.address)
    settle(site, 30)
    assert site.nodes[1].leaving.state == "handed over"
    identity = site.identities[1]
    site.lose_disk(1)
    settle(site, 10)
    assert site.nodes[other].keeping.copies.appointments(identity)
    site.kill(other)
    reader = site.nodes[taker].read("t", "c", 10)
    for message in list(reader.take()):
        assert site.nodes[taker].answer(reader, message, "FIN")
    site.nodes[taker].leave(reader)
    settle(site, 30)
    assert not site.nodes[taker].keeping.copies.appointments(identity)
    site.start(other)
    settle(site, 40)
    return site, identity, taker, other


def test_a_keeper_that_missed_the_end_of_a_log_gets_away_all_the_same(missed):
    site, identity, taker, other = missed
    assert len(has(site.nodes[other])) == 5

    site.leave(other, f"n{taker}:4150")
    settle(site, 60)

    assert site.nodes[other].leaving.state == "handed over"
    assert len(has(site.nodes[taker])) == 5
    # The home may still not take its log back.
    assert not site.nodes[taker].keeping.copies.for_good(identity).by_keeper


def test_one_whose_number_the_taker_has_noted_once_comes_with_another(missed):
    """The log was handed over before under that number, and was given back when its home came."""
    site, identity, taker, other = missed
    copies = site.nodes[taker].keeping.copies
    whose = site.nodes[taker].identity.hex()
    file = site.nodes[other].carrier.successors.file(identity)
    file.appointments.last = 6
    once = file.appointments.appoint(Candidate(f"n{taker}:4150", whose))
    note = ForGood(once.number, f"n{other}:4150", 5)
    site.nodes[taker].carrier.inherited.noted(NoteForGood(copies, identity, note, None))

    for _ in range(2):
        site.leave(other, f"n{taker}:4150")
        settle(site, 40)

    assert site.nodes[other].leaving.state == "handed over"
    assert max(copies.appointments(identity)) > once.number
    assert len(has(site.nodes[taker])) == 5


def test_one_that_ends_in_the_middle_of_it_goes_on_where_it_was(missed):
    site, identity, taker, other = missed
    site.slow.add(taker)
    site.leave(other, f"n{taker}:4150")
    for _ in range(40):
        site.advance(0.5)
        if site.nodes[taker].keeping.copies.appointments(identity):
            break
    assert site.nodes[other].leaving.state in ("filling", "stopping")
    site.kill(other)
    site.slow.clear()
    settle(site, 5)

    site.start(other)
    settle(site, 40)
    site.leave(other, f"n{taker}:4150")
    settle(site, 60)

    assert site.nodes[other].leaving.state == "handed over"
    assert len(has(site.nodes[taker])) == 5


def test_a_home_that_comes_while_its_taker_is_told_has_its_log_again(copied_site):
    site = copied_site(3)
    (keeper,) = site.nodes[1].file.appointments.current
    giver, taker = int(keeper.address[1]), 5 - int(keeper.address[1])
    identity = site.identities[1]
    site.kill(1)
    settle(site, 35)
    site.leave(giver, f"n{taker}:4150")
    for _ in range(60):
        site.advance(0.5)
        if site.nodes[giver].leaving.state == "noted":
            break
    # The taker loses the copy that it has to be told about.
    site.lose_disk(taker)
    site.advance(5)

    site.start(1)
    site.start(taker)
    settle(site, 40)

    assert site.nodes[giver].leaving.state == "handed over"
    assert handed_over.load(site.disks[giver], site.nodes[giver].carrier.folder_of(identity)) is None
    assert len(has(site.nodes[1])) == 5
