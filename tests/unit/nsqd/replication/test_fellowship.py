"""Several keepers of one home that is gone: the highest of those that reach each other gives out."""

import random

import pytest

from nsqd.replication.fellow_hears import FellowHears
from nsqd.replication.frames import FellowCopy, Had, Told
from tests.campaign.carried.site import CarryingSite


@pytest.fixture
def site():
    found = CarryingSite(3, random.Random(5), strict=False, replicas=2)
    found.nodes[1].channel("t", "c")
    for _ in range(4):
        found.advance(1)
        found.settle()
    oks = []
    for number in range(6):
        found.nodes[1].publish("t", b"%d" % number).tells.append(oks.append)
    found.settle()
    assert oks == [""] * 6
    yield found
    found.close()


def given(site):
    """What consumers get at each keeper, who answer nothing."""
    readers = {number: site.nodes[number].read("t", "c", 100) for number in (2, 3)}
    site.advance(3)
    found = {number: b"".join(body for _, body in reader.take()) for number, reader in readers.items()}
    return found, readers


def higher(site):
    """The keeper that was appointed last, and the other."""
    last = max(site.nodes[1].file.appointments.current, key=lambda one: one.number)
    number = int(last.address[1])
    return number, 5 - number


def test_the_higher_of_two_keepers_gives_out_what_both_have(site):
    high, low = higher(site)
    site.kill(1)
    site.advance(35)

    found, _ = given(site)

    assert found == {high: b"012345", low: b""}


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


def test_what_is_said_of_no_copy_is_not_understood():
    assert not FellowHears().take(Had(1, ((1, 2),)))
    hears = FellowHears()
    assert hears.take(FellowCopy(1, 3))
    assert not hears.take(Had(1, ((1, 2),)))
    assert hears.take(Told())
    assert hears.done
    assert not FellowHears().take(FellowCopy(1, 9))
