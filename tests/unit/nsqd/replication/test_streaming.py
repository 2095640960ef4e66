"""The stream of new writes, and the older files behind it."""

import errno
import random
from collections.abc import Callable

import pytest

from tests.support.pair import Pair

_S = 1_000_000_000


@pytest.fixture
def pair():
    return Pair()


def linked(pair: Pair, name: str = "t") -> bool:
    return pair.link is not None and pair.link.counts(pair.home.store(name))


def test_what_is_published_is_in_the_copy(pair):
    pair.connect()
    pair.move()
    pair.home.channel("c")
    for number in range(100):
        pair.home.publish(b"%d" % number)
    pair.settle()

    assert len(pair.copied()) > 3
    assert pair.copied() == pair.at_home()


def test_what_was_there_before_is_filled_in_behind(pair):
    pair.home.channel("c")
    for number in range(100):
        pair.home.publish(b"%d" % number)
    pair.home.checkpoint()
    pair.connect()
    pair.settle()
    pair.home.publish(b"new")
    pair.settle()

    assert pair.copied() == pair.at_home()
    assert pair.link.streams()[0].filled


def test_a_topic_that_is_new_counts_at_once(pair):
    pair.connect()
    pair.move()

    pair.home.publish(b"one")

    assert linked(pair)


def test_a_topic_that_was_there_counts_when_a_checkpoint_tells_of_what_was_before(pair):
    pair.home.channel("c")
    pair.home.publish(b"one")
    pair.connect()
    pair.move()
    pair.home.publish(b"two")
    assert not linked(pair)

    pair.home.checkpoint()

    assert linked(pair)


def test_the_stream_goes_on_where_a_cut_has_ended_it(pair):
    pair.connect()
    pair.move()
    pair.home.channel("c")
    for number in range(30):
        pair.home.publish(b"%d" % number)
    pair.cut(keep=777)
    pair.home.publish(b"meanwhile")
    pair.connect()
    pair.settle()

    assert pair.copied() == pair.at_home()


def test_what_everybody_has_finished_goes_from_the_copy(pair):
    pair.connect()
    pair.move()
    pair.home.channel("c")
    for number in range(100):
        pair.home.publish(b"%d" % number)
    pair.settle()
    before = len(pair.copied())

    pair.home.empty()
    pair.home.sync()
    pair.settle()

    assert len(pair.copied()) < before
    assert pair.copied() == pair.at_home()


def test_files_that_were_compacted_while_the_keeper_was_away_take_the_place_of_others(pair):
    pair.home.channel("c")
    pair.home.channel("d")
    for number in range(100):
        pair.home.publish(b"%d" % number)
    pair.connect()
    pair.settle()
    pair.cut()
    topic = pair.home.topic()
    pair.home.sync()
    for channel in topic.channels.values():
        channel.finished.add_run(topic.log.kept_from, topic.log.next_seq - 3)
    pair.connect()
    pair.settle()

    assert pair.copied() == pair.at_home()


def test_a_deleted_topic_goes_from_the_keeper(pair):
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    pair.settle()

    pair.home.delete()
    pair.move()

    assert pair.copied() == {}
    assert pair.home.home.untold == {}


def test_a_new_topic_is_whole_from_the_beginning(pair):
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    pair.move()

    assert pair.link.streams()[0].filled


def test_a_file_with_a_wrong_bit_on_its_way_is_sent_again(pair):
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    data = bytearray(b"".join(pair.link.flush(pair.now)))
    data[-1] ^= 1
    pair.out = [bytes(data)]
    pair.move()
    assert pair.link is None

    pair.connect()
    pair.settle()

    assert pair.copied() == pair.at_home()


def test_a_file_that_cannot_be_read_at_home_does_not_hold_up_the_others(pair):
    for number in range(100):
        pair.home.publish(b"%d" % number)
    pair.home.disk.fail(errno.EIO, "read", "*00000002.log", times=None)
    pair.connect()
    pair.settle()
    pair.home.disk.heal()

    missing = pair.at_home().keys() - pair.copied().keys()
    assert missing == {"00000002.log"}


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_the_copy_is_the_home_s_in_the_end(seed):
    rng = random.Random(seed)
    pair = Pair()
    waits: list[tuple[int, list[str]]] = []

    def publish() -> None:
        name = rng.choice("tu")
        pair.home.publish(b"%d" % rng.randrange(1 << 40) * rng.randint(1, 60), name=name)
        wait = pair.home.home.wait(pair.home.store(name))
        if wait is not None:
            told: list[str] = []
            wait.tells.append(told.append)
            waits.append((0, told))

    def restart_keeper() -> None:
        disk = pair.disk.killed() if rng.random() < 0.5 else pair.disk.after_power_cut(rng)
        pair.restart_keeper(disk)

    def restart_home() -> None:
        disk = pair.home.disk
        pair.restart_home(disk.killed() if rng.random() < 0.7 else disk.after_power_cut(rng))

    def delete() -> None:
        name = rng.choice("tu")
        if name in pair.home.broker.topics:
            pair.home.delete(name)

    def tick() -> None:
        pair.now += rng.choice([0, _S // 10, _S])

    def at_home(what: str, *names: str) -> Callable[[], object]:
        return lambda: getattr(pair.home, what)(*map(rng.choice, names))

    events = [publish] * 12 + [pair.step] * 10 + [pair.move] * 2 + [tick] * 2 + [pair.connect]
    events += [lambda: pair.cut(rng.randrange(4000)), restart_keeper, restart_home, delete]
    events += [at_home("checkpoint")] * 3 + [at_home("sync")] * 2
    events += [at_home("channel", "ab", "tu"), at_home("empty", "tu"), at_home("compact", "tu")]
    for _ in range(150):
        rng.choice(events)()
    pair.connect()
    pair.settle()

    for name in pair.home.broker.topics:
        assert pair.copied(name) == pair.at_home(name)
    assert all(told == [""] for _, told in waits)
