"""What a home has said, how much of it the keeper has, and who waits for that."""

import pytest

from tests.support.pair import Pair

_S = 1_000_000_000


@pytest.fixture
def pair():
    return Pair()


def linked(pair: Pair, name: str = "t") -> bool:
    return pair.link is not None and pair.link.counts(pair.home.store(name))


def test_a_keeper_that_hangs_counts_no_more_until_it_has_caught_up(pair):
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    told = []
    pair.home.home.wait(pair.home.store()).tells.append(told.append)
    link = pair.link
    pair.out += link.flush(pair.now)

    link.tick(pair.now + 3 * _S)

    assert told == [""]
    assert not linked(pair)
    pair.move()
    assert linked(pair)
