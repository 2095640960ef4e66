"""Several keepers of a home that is gone: of those that reach each other, the highest gives out."""

import errno

import pytest

from nsqd.engine.facts import ChannelFacts
from nsqd.replication.copies import Copies
from nsqd.replication.fellow_hears import FellowHears
from nsqd.replication.fellows import FellowHas, FellowStanding, KnownFellows
from nsqd.replication.fellowship import Fellowship
from nsqd.replication.frames import Fellow, FellowCopy, Had, Told
from nsqd.replication.holdings import Holdings
from tests.support.copied import DATA
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.nsqd.replication.test_carrier import HOME, Keeper


@pytest.fixture
def site(copied_site):
    return copied_site(3, messages=6, replicas=2)


def given(site):
    """The messages that consumers get at each keeper, and the consumers, which answer nothing."""
    readers = {number: site.nodes[number].read("t", "c", 100) for number in (2, 3)}
    site.advance(3)
    found = {number: b"".join(body for _, body in reader.take()) for number, reader in readers.items()}
    return found, readers


def higher(site):
    """The numbers of the keeper that was appointed last and of the other one."""
    last = max(site.nodes[1].file.appointments.current, key=lambda one: one.number)
    number = int(last.address[1])
    return number, 5 - number


def test_the_higher_of_two_keepers_gives_out_what_both_have(site):
    high, low = higher(site)
    site.kill(1)
    site.advance(35)

    found, _ = given(site)

    assert found == {high: b"012345", low: b""}


def test_a_keeper_says_that_the_home_is_there_also_of_a_copy_that_was_begun_since_the_home_came(site):
    identity = site.nodes[1].identity
    high, _ = higher(site)

    said = Fellowship(site.nodes[high].carrier, f"n{high}:4150").says(identity, site.nodes[high].now)

    assert said == [FellowCopy(2, FellowStanding.HOME_IS_HERE), Told()]


def test_a_keeper_that_lost_the_home_gives_out_nothing_while_the_home_is_at_a_higher_one(site):
    high, low = higher(site)
    site.deaf = {(1, low), (low, 1)}
    site.advance(50)

    found, _ = given(site)

    assert found == {high: b"", low: b""}


def test_keepers_that_do_not_reach_each_other_both_give_out_all(site):
    site.deaf = {(2, 3), (3, 2)}
    site.kill(1)
    site.advance(35)

    found, _ = given(site)

    assert found == {2: b"012345", 3: b"012345"}


def test_when_the_higher_is_gone_the_other_gives_out_what_was_not_finished_there(site):
    high, low = higher(site)
    site.kill(1)
    site.advance(35)
    _, readers = given(site)
    for message in readers[high].has[:4]:
        site.nodes[high].answer(readers[high], message, "FIN")
    site.advance(3)
    site.kill(high)
    site.advance(3)

    assert b"".join(body for _, body in readers[low].take()) == b"45"


def test_what_a_keeper_has_whose_clients_are_all_sent_away_another_gives_out(site):
    high, low = higher(site)
    site.kill(1)
    site.advance(35)
    found, readers = given(site)
    assert found == {high: b"012345", low: b""}
    for message in readers[high].has[:4]:
        site.nodes[high].answer(readers[high], message, "FIN")

    # This keeper is about to leave, and nobody takes its copy at present.
    site.nodes[high].broker.leaving = True
    site.nodes[high].send_away()
    site.advance(3)

    assert b"".join(body for _, body in readers[low].take()) == b"45"


def test_a_keeper_that_starts_anew_knows_whom_to_ask(site):
    high, low = higher(site)
    site.kill(1)
    site.kill(low)
    site.start(low)
    site.advance(40)

    found, _ = given(site)

    assert found == {high: b"012345", low: b""}


def test_when_the_home_is_back_it_gives_out_what_neither_has_finished(site):
    high, _ = higher(site)
    site.kill(1)
    site.advance(35)
    _, readers = given(site)
    for message in readers[high].has[:4]:
        site.nodes[high].answer(readers[high], message, "FIN")
    for number, reader in readers.items():
        site.nodes[number].leave(reader)
    site.start(1)
    site.advance(10)
    site.settle()

    reader = site.nodes[1].read("t", "c", 100)

    assert b"".join(body for _, body in reader.take()) == b"45"


def channel_of(keeper):
    return keeper.copy(1).topics["t"].channels["c"]


def test_where_the_home_is_no_keeper_says_which_channel_is_the_channel():
    keeper = Keeper()
    keeper.shelf.files[2] = {"t": (100, [b"a"], {})}
    fellowship = Fellowship(keeper.carrier, "n2:4150")
    keeper.came()
    keeper.carrier.began(HOME, 2, keeper.node.now_ns, has_topics=True)
    # The home has lost what the older copy has; its channel is the channel of this copy.
    keeper.carrier.answered(HOME, Holdings({"t": []}, {"t": {"c": ChannelFacts(9, [])}}))
    keeper.tick(30)
    channel_of(keeper).empty()

    # A keeper whose data path is a copy of another continues with what is there: the channel as it was.
    other = Holdings({"t": [(100, 103)]}, {"t": {"c": ChannelFacts(7, [])}})
    fellowship.heard(HOME, "n3:4150", [FellowHas(2, FellowStanding.CARRIED, other)], keeper.node.now_ns)

    assert (channel_of(keeper).generation, channel_of(keeper).depth) == (9, 0)


def test_of_two_higher_keepers_that_do_not_reach_each_other_one_says_which_channel_is_the_channel():
    keeper = Keeper()
    fellowship = Fellowship(keeper.carrier, "n1:4150")
    keeper.tick(30)

    def says(number, generation):
        other = Holdings({"t": [(100, 101)]}, {"t": {"c": ChannelFacts(generation, [])}})
        copies = [FellowHas(number, FellowStanding.CARRIED, other)]
        fellowship.heard(HOME, f"n{number}:4150", copies, keeper.node.now_ns)

    says(2, 7)
    says(3, 8)
    # Consumers got all of it.
    channel_of(keeper).empty()
    says(2, 7)
    says(3, 8)

    assert (channel_of(keeper).generation, channel_of(keeper).depth) == (8, 0)


def test_what_a_keeper_has_that_is_not_asked_here_keeps_nothing_back_when_it_falls_silent():
    keeper = Keeper()
    fellowship = Fellowship(keeper.carrier, "n1:4150")
    keeper.tick(30)

    # This keeper had left when that one was appointed: that one knows whom to ask, and this one does not.
    other = Holdings({"t": [(100, 103)]}, {"t": {"c": ChannelFacts(7, [])}})
    for _ in range(30):
        keeper.tick(1)
        fellowship.heard(HOME, "n3:4150", [FellowHas(2, FellowStanding.CARRIED, other)], keeper.node.now_ns)
        assert not fellowship.to_ask(keeper.node.now_ns)
        assert channel_of(keeper).depth == 0
    keeper.tick(10)
    fellowship.to_ask(keeper.node.now_ns)
    assert channel_of(keeper).depth == 0

    # The other keeper is silent for more than ten seconds: its disk is lost.
    keeper.tick(1)
    fellowship.to_ask(keeper.node.now_ns)

    assert channel_of(keeper).depth == 3


@pytest.fixture
def unfounded():
    """A keeper whose copy was never whole: it has made up a channel, and owes nothing on it."""
    keeper = Keeper({3: {"t": (100, [b"a", b"b", b"c"], {"c": [(100, 103)]})}})
    keeper.shelf.unfounded = {3}
    return keeper


def channel_at(keeper, appointment):
    return keeper.copy(appointment).topics["t"].channels["c"]


def test_a_copy_that_was_never_whole_is_not_spoken_of(unfounded):
    unfounded.tick(30)
    unfounded.tick()

    says = Fellowship(unfounded.carrier, "n5:4150").says(HOME, unfounded.node.now_ns)

    assert [type(frame) for frame in says] == [FellowCopy, Told]


def test_a_copy_that_was_never_whole_believes_an_older_one(unfounded):
    unfounded.tick(30)
    unfounded.tick()
    fellowship = Fellowship(unfounded.carrier, "n5:4150")

    other = Holdings({"t": [(100, 103)]}, {"t": {"c": ChannelFacts(7, [(100, 101)])}})
    fellowship.heard(HOME, "n2:4150", [FellowHas(2, FellowStanding.CARRIED, other)], unfounded.node.now_ns)

    channel = channel_at(unfounded, 3)
    assert (channel.generation, channel.owed(0, 200)) == (7, [(101, 103)])
    assert len(fellowship.says(HOME, unfounded.node.now_ns)) > 2


def test_what_is_said_of_no_copy_is_not_understood():
    assert not FellowHears().take(Had(1, ((1, 2),)))
    hears = FellowHears()
    assert hears.take(FellowCopy(1, 3))
    assert not hears.take(Had(1, ((1, 2),)))
    assert hears.take(Told())
    assert hears.done
    assert not FellowHears().take(FellowCopy(1, 9))


def test_a_note_of_the_keepers_that_cannot_be_read_now_is_read_again():
    disk = SimulatedDisk(DATA)
    KnownFellows(Copies(disk, DATA)).note(HOME, (Fellow(1, "a:4150"),))
    fellows = KnownFellows(Copies(disk, DATA))
    disk.fail(errno.EIO, path="*fellows.json")
    with pytest.raises(OSError, match=r"[Ii]nput/output"):
        fellows.look(HOME, ())

    fellows.look(HOME, ())

    assert fellows.known(HOME) == (Fellow(1, "a:4150"),)


def test_keepers_that_could_not_be_noted_are_noted_when_the_home_names_them_again():
    disk = SimulatedDisk(DATA)
    named = (Fellow(1, "a:4150"), Fellow(2, "b:4150"))
    fellows = KnownFellows(Copies(disk, DATA))
    disk.fail(errno.ENOSPC, path="*fellows.json*")
    with pytest.raises(OSError, match="No space"):
        fellows.note(HOME, named)

    fellows.note(HOME, named)

    started = KnownFellows(Copies(disk, DATA))
    started.look(HOME, ())
    assert started.known(HOME) == named
