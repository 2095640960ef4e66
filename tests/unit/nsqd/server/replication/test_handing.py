"""The moment of a hand-over: what can be taken back, and what cannot."""

import asyncio
import errno
from types import SimpleNamespace

import pytest

from nsqd.replication import handed_over
from nsqd.replication.frames import Refuse
from nsqd.server.replication.departure import Departure
from nsqd.server.replication.handing import has_heard
from tests.campaign.carried.node import DATA
from tests.support.copied_site import has, settle

TAKER = "n2:4150"


@pytest.fixture
def site(copied_site):
    return copied_site(2)


def until(site, *states, number=1):
    """Let time pass until a node, which is the first one if no other is named, reaches one of *states*."""
    node = site.nodes[number]
    for _ in range(60):
        if node.leaving.state in states:
            return
        site.advance(0.5)
        site.settle()
    raise AssertionError(f"it is {node.leaving.state}: {node.said}")


def until_noted(site):
    """Let time pass until the first node has noted the hand-over; from then on it does not hear the taker."""
    until(site, "stopping")
    for _ in range(40):
        site.advance(0.5)
        if site.nodes[1].leaving.state == "noted":
            return
        site.settle()
    raise AssertionError(f"it is {site.nodes[1].leaving.state}: {site.nodes[1].said}")


def note_of(site):
    return handed_over.load(site.disks[1], DATA)


def test_what_is_handed_over_is_the_taker_s(site):
    site.leave(1, TAKER)
    until(site, "handed over")

    assert note_of(site).confirmed
    assert site.nodes[1].owed() == {("t", "c"): 0}
    site.lose_disk(1)
    assert has(site.nodes[2]) == b"01234"


@pytest.mark.parametrize("place", [0, 1])
def test_the_taker_ranks_above_all_keepers_and_gives_out_at_once(copied_site, place):
    site = copied_site(3, messages=6, replicas=2)
    identity = site.nodes[1].identity
    keepers = sorted(site.nodes[1].file.appointments.current, key=lambda one: one.number)
    taker = int(keepers[place].address[1])
    other = site.nodes[5 - taker]
    site.leave(1, keepers[place].address)
    until(site, "handed over")

    assert note_of(site).appointment > max(one.serving.appointment for one in other.carrier.of(identity))
    site.lose_disk(1)
    settle(site, 2)
    assert has(site.nodes[taker]) == b"012345"
    # Nor does the other begin later.
    settle(site, 40)
    assert has(other) == b""


@pytest.mark.parametrize("lives", [1, 2])
def test_a_taker_that_has_had_it_copied_gives_it_out_at_once_after_each_start(copied_site, lives):
    site = copied_site(3, messages=6, replicas=2)
    identity = site.nodes[1].identity
    taker = int(site.nodes[1].file.appointments.current[0].address[1])
    other = site.nodes[5 - taker]
    site.leave(1, f"n{taker}:4150")
    until(site, "handed over")
    site.lose_disk(1)
    settle(site, 10)
    # The newest copy is now that which the taker has had made, and the taker is its home.
    (copied, *_) = other.carrier.of(identity)
    assert copied.serving.appointment > site.nodes[taker].carrier.of(identity)[0].serving.appointment

    for _ in range(lives):
        site.kill(taker)
        site.start(taker)
        settle(site, 5)

    assert has(site.nodes[taker]) == b"012345"


def test_a_taker_that_was_away_for_long_asks_who_has_its_copy_before_it_gives_anything_out(copied_site):
    site = copied_site(3, messages=6, replicas=2)
    taker = int(site.nodes[1].file.appointments.current[0].address[1])
    site.leave(1, f"n{taker}:4150")
    until(site, "handed over")
    site.lose_disk(1)
    settle(site, 10)
    site.kill(taker)
    settle(site, 40)
    site.start(taker)

    seen = b""
    for _ in range(40):
        site.advance(0.1)
        if "t" in site.nodes[taker].broker.topics:
            seen += has(site.nodes[taker])

    assert seen == b""
    assert has(site.nodes[5 - taker]) == b"012345"


def test_a_taker_that_is_told_once_more_still_knows_the_other_keepers(copied_site):
    site = copied_site(3, messages=6, replicas=2)
    identity = site.nodes[1].identity
    taker, other = (int(one.address[1]) for one in site.nodes[1].file.appointments.current)
    site.leave(1, f"n{taker}:4150")
    until_noted(site)
    site.kill(1)
    assert not note_of(site).confirmed

    assert site.start(1)

    assert note_of(site) is None
    assert f"n{other}:4150" in site.nodes[taker].carrier.fellows.others(identity, f"n{taker}:4150")


def test_what_is_handed_on_ranks_above_what_other_keepers_of_that_home_have(copied_site):
    site = copied_site(4, messages=6, replicas=2)
    identity = site.nodes[1].identity
    low, high = sorted(site.nodes[1].file.appointments.current, key=lambda one: one.number)
    (taker,) = {2, 3, 4} - {int(one.address[1]) for one in (low, high)}
    site.lose_disk(1)
    settle(site, 35)

    site.leave(int(low.address[1]), f"n{taker}:4150")
    until(site, "handed over", number=int(low.address[1]))

    (taken,) = site.nodes[taker].carrier.of(identity)
    assert taken.serving.appointment == high.number + 1
    settle(site, 5)
    assert has(site.nodes[taker]) + has(site.nodes[int(high.address[1])]) == b"012345"


def test_what_a_batch_publishes_that_began_before_the_drain_is_handed_over_too(site):
    node = site.nodes[1]
    node.broker.under_way += 1
    site.leave(1, TAKER)
    settle(site, 40)
    assert note_of(site) is None
    node.broker.topics["t"].stage(b"5", node.now)
    node.broker.dirty[node.broker.topics["t"]] = None
    node.broker.under_way -= 1
    until(site, "handed over")

    site.lose_disk(1)
    assert has(site.nodes[2]) == b"012345"


def test_a_note_that_cannot_be_written_is_taken_back_and_the_node_goes_on(site):
    site.disks[1].fail(errno.EIO, "rename", "*handed-over.json*")

    site.leave(1, TAKER)
    until(site, "failed")

    assert note_of(site) is None
    assert site.nodes[1].leaving.cancel()
    assert has(site.nodes[1]) == b"01234"


def test_a_note_of_which_nobody_knows_whether_it_is_there_counts(site):
    site.leave(1, TAKER)
    until(site, "stopping")
    # The note has its name, but that is not durable, and the note cannot be removed.
    site.disks[1].fail(errno.EIO, "sync_folder", "/data")
    site.disks[1].fail(errno.EIO, "remove", "*handed-over.json", times=None)
    until(site, "failed")
    assert note_of(site) is not None

    # The next start would remove what would be published now.
    assert not site.nodes[1].leaving.cancel()
    assert site.nodes[1].owed() == {("t", "c"): 0}
    site.disks[1].heal()
    site.leave(1, "n9:4150")
    until(site, "handed over")

    assert note_of(site).to == TAKER
    assert has(site.nodes[2]) == b"01234"


def test_behind_the_note_nothing_is_taken_back_while_the_taker_is_not_there(site):
    site.leave(1, TAKER)
    until_noted(site)
    site.kill(2)
    site.advance(20)

    assert site.nodes[1].leaving.state == "noted"
    assert not site.nodes[1].leaving.cancel()
    site.start(2)
    until(site, "handed over")

    assert has(site.nodes[2]) == b"01234"


def test_until_the_note_it_may_be_taken_back(site):
    site.leave(1, TAKER)
    until(site, "stopping")

    assert site.nodes[1].leaving.cancel()

    assert has(site.nodes[1]) == b"01234"
    settle(site, 40)
    assert "t" not in site.nodes[2].broker.topics


def test_a_taker_that_lost_its_disk_behind_the_note_is_given_all_of_it_again(site):
    site.leave(1, TAKER)
    until_noted(site)
    first = note_of(site)
    site.lose_disk(2)
    site.advance(5)
    site.start(2)
    until(site, "handed over")

    note = note_of(site)
    assert (note.taker, note.confirmed) == (site.nodes[2].identity.hex(), True)
    assert note.appointment > first.appointment
    site.lose_disk(1)
    assert has(site.nodes[2]) == b"01234"


def test_a_node_whose_topics_are_all_deleted_on_the_way_leaves_all_the_same(site):
    site.lose_disk(2)
    site.leave(1, TAKER)
    until(site, "filling")
    node = site.nodes[1]
    node.data.delete(node.broker.topics["t"])
    node.broker.delete_topic("t")
    site.start(2)

    until(site, "handed over")

    assert note_of(site).confirmed


def test_a_taker_that_is_about_to_leave_itself_takes_what_is_noted_already(site):
    site.leave(1, TAKER)
    until_noted(site)
    site.kill(2)
    site.start(2)
    site.nodes[2].broker.draining = True
    until(site, "handed over")

    assert has(site.nodes[2]) == b"01234"


@pytest.fixture
def noted(site):
    """The home has noted that all is the taker's, and is killed before the taker is told."""
    site.leave(1, TAKER)
    until_noted(site)
    site.kill(1)
    return note_of(site)


def test_a_taker_that_needs_the_copy_no_more_keeps_nobody_from_starting(site, noted):
    # The taker removes the copy, as it does when another keeper has all of it.
    copies = site.nodes[2].keeping.copies
    copies.remove(bytes.fromhex(noted.identity), noted.appointment)
    copies.remove_deleted()
    site.kill(2)
    site.start(2)

    assert any(site.start(1) for _ in range(5))

    assert site.nodes[1].identity.hex() != noted.identity


def test_a_taker_that_has_lost_its_disk_does_not_count_as_one_that_has_heard(site, noted):
    link = SimpleNamespace(
        taken=False, refused=Refuse.NO_COPY, keeper=SimpleNamespace(identity=bytes.fromhex(noted.taker))
    )
    assert has_heard(link, noted)

    link.keeper = SimpleNamespace(identity=bytes(16))

    assert not has_heard(link, noted)


# --- what is here of others ---


class Holds:
    """A carrier with one copy, which is gone after the first look at it."""

    stood_in = frozenset()

    def __init__(self, fault=None):
        self.left = 1
        self.fault = fault

    def __iter__(self):
        return iter([SimpleNamespace(identity=b"home")])

    def may_be_needed(self, _identity):
        self.left -= 1
        return self.left >= 0

    def is_here(self, _identity):
        return False

    def of(self, _identity):
        if self.fault:
            raise self.fault
        return []


def leaving(carrier):
    """A node with no messages of its own that leaves permanently."""
    broker = SimpleNamespace(topics={}, leaving=False, at_rest=True)
    log = SimpleNamespace(info=print, warning=print, error=print)
    return Departure(
        *(broker, None, None, carrier, None, log), tls=None, send_away=lambda: None, ask_turn=lambda: None
    )


async def ended(departure):
    await asyncio.wait([departure._task], timeout=10)
    return departure.progress


async def test_a_copy_that_goes_while_another_is_handed_on_keeps_nobody_here():
    departure = leaving(Holds())
    departure.begin(TAKER, 1)

    assert (await ended(departure)).state == "handed over"


async def test_a_fault_nobody_thought_of_is_told_and_it_may_begin_again():
    carrier = Holds(ValueError("what nobody thought of"))
    departure = leaving(carrier)
    departure.begin(TAKER, 1)
    progress = await ended(departure)
    assert (progress.state, progress.problem) == ("failed", "ValueError: what nobody thought of")
    assert not departure.under_way

    carrier.fault = None
    departure.begin(TAKER, 1)

    assert (await ended(departure)).state == "handed over"
