"""The home's side: what is streamed and filled, whose word counts, and for whom publishers wait."""

import errno
import random
from collections.abc import Callable

import pytest

from nsqd.replication.choosing import Appointed
from nsqd.replication.frames import Ack, Finished, Hello, Refuse, StillOut, Told, Welcome, encode
from nsqd.replication.home import HomeLink, HomeSettings
from tests.support.pair import KEEPER, Pair

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


def test_a_publisher_is_told_when_the_keeper_has_its_message(pair):
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    told = []

    wait = pair.home.home.wait(pair.home.store())
    wait.tells.append(told.append)
    assert told == []
    pair.move()

    assert told == [""]


def test_those_who_publish_in_one_turn_wait_together(pair):
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    first = pair.home.home.wait(pair.home.store())

    assert pair.home.home.wait(pair.home.store()) is first
    pair.home.publish(b"two")
    assert pair.home.home.wait(pair.home.store()) is not first


def test_with_strict_syncing_the_keeper_syncs_before_anybody_is_told():
    pair = Pair(HomeSettings(replicas=1, strict=True))
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    told = []
    pair.home.home.wait(pair.home.store()).tells.append(told.append)
    pair.move()

    assert told == [""]
    after = pair.disk.after_power_cut(random.Random(3))
    assert after.read_file(pair.copy_path() / "00000001.log") == pair.at_home()["00000001.log"]


@pytest.mark.parametrize(("refuse", "said"), [(False, ""), (True, "0 of 1 keepers are linked")])
def test_a_publisher_does_not_hang_on_a_keeper_that_goes(refuse, said):
    pair = Pair(HomeSettings(replicas=1, refuse=refuse))
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    told = []
    pair.home.home.wait(pair.home.store()).tells.append(told.append)

    pair.cut()

    assert told == [said]
    assert pair.home.home.lacks(pair.home.store()) == said
    assert pair.home.home.wait(pair.home.store()) is None


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


def test_a_keeper_that_is_silent_for_long_is_given_up(pair):
    pair.connect()
    pair.move()
    link = pair.link

    link.tick(pair.now + 16 * _S)

    assert link.closing
    assert link.reason == "the keeper is silent"


def test_a_keeper_with_too_much_under_way_is_given_up(pair, monkeypatch):
    monkeypatch.setattr("nsqd.replication.home.MOST_BEHIND", 10_000)
    pair.connect()
    pair.move()
    link = pair.link
    for _ in range(4):
        pair.home.publish(b"x" * 3000)

    assert link.reason == "the keeper does not keep up"


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


def test_a_topic_that_was_deleted_while_the_keeper_was_away_goes_when_it_is_back(pair):
    pair.connect()
    pair.move()
    pair.home.publish(b"one")
    pair.settle()
    pair.cut()
    pair.home.delete()
    pair.home.publish(b"of another life")
    assert pair.home.home.untold == {"t": {"keeper:4150"}}

    pair.connect()
    pair.settle()

    assert pair.copied() == pair.at_home()
    assert pair.home.home.untold == {}
    assert pair.home.appointed.number == 1


def test_a_home_that_was_killed_goes_on_with_its_copy(pair):
    pair.connect()
    pair.move()
    pair.home.channel("c")
    for number in range(50):
        pair.home.publish(b"%d" % number)
    pair.settle()

    pair.restart_home(pair.home.disk.killed())
    pair.home.publish(b"after")
    pair.connect()
    pair.settle()

    assert pair.home.appointed.number == 1
    assert pair.copied() == pair.at_home()


def test_what_a_home_has_lost_by_a_power_cut_stays_with_the_keeper(pair):
    pair.connect()
    pair.move()
    pair.home.publish(b"kept")
    pair.home.sync()
    pair.settle()
    cut = pair.home.disk.after_power_cut(random.Random(1))
    pair.home.publish(b"lost")
    pair.settle()
    old, whole = pair.copy_path(), pair.copied()

    pair.restart_home(cut)
    pair.home.publish(b"after")
    pair.connect()
    pair.settle()

    assert pair.home.appointed.number == 2
    assert pair.copied() == pair.at_home()
    assert b"lost" in b"".join(whole.values())
    assert pair._files(pair.disk, old) == whole


def test_what_somebody_has_removed_at_home_stays_with_the_keeper(pair):
    pair.connect()
    pair.move()
    pair.home.channel("c")
    pair.home.publish(b"one")
    pair.settle()
    old, whole = pair.copy_path(), pair.copied()

    pair.home.disk.remove_folder(pair.home.store().folder)
    pair.home.store().look_for_folder()
    assert pair.link.closing
    pair.home.publish(b"two")
    pair.connect()
    pair.settle()

    assert pair._files(pair.disk, old) == whole
    assert pair.home.appointed.number == 2


def test_another_node_at_the_address_of_a_keeper_gets_another_appointment(pair):
    pair.home.appointed = Appointed(1, "keeper:4150", "aa" * 16)
    pair.home.publish(b"one")
    pair.connect()
    pair.settle()

    assert pair.home.appointed.number == 2
    assert pair.copied() == pair.at_home()


def test_a_home_that_cannot_note_an_appointment_tries_again_later(pair):
    def again(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    pair.home.appointed = Appointed(1, "keeper:4150", "aa" * 16)
    pair.home.home.again = again
    pair.connect()
    link = pair.link
    pair.move()

    assert link.reason == "the next appointment cannot be noted: no space left on device"


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


def test_a_keeper_with_a_full_disk_is_told_of_in_one_sentence(pair):
    pair.connect()
    pair.move()
    pair.disk.fail(errno.ENOSPC, "append", times=None)
    link = pair.link
    pair.home.publish(b"one")
    pair.move()

    assert link.refused == Refuse.DISK
    assert link.reason == "the keeper refuses: the keeper's disk: no space left on device"


@pytest.mark.parametrize(
    "welcome", [Welcome(KEEPER, 1, "keeper:4150"), Welcome(KEEPER, 2, "keeper:4150", version=7)]
)
def test_a_keeper_that_cannot_keep_is_told_why(pair, welcome):
    link = HomeLink(pair.home.home, pair.home.appointed, 0)
    link.receive(encode(welcome), 0)

    assert link.closing
    assert "node id 1" in link.reason or "version 7" in link.reason


@pytest.mark.parametrize("frame", [Ack(1 << 40, 0), Hello(KEEPER, 1, 1, "x"), Ack(0, 1)])
def test_what_a_keeper_cannot_say_ends_the_connection(pair, frame):
    link = HomeLink(pair.home.home, pair.home.appointed, 0)
    link.receive(encode(frame), 0)

    assert link.closing


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


def test_a_home_hears_what_a_keeper_finished_before_it_goes_on_with_its_copy(pair):
    pair.home.publish(b"a")
    heard = []
    pair.home.home.heard = lambda _link, topic, frame: heard.append((topic, frame))
    released = []
    pair.keeping.released = lambda _identity: bool(released)
    pair.connect()
    pair.move()
    assert pair.kept.waits_for_release
    (number,) = pair.kept.topics

    facts = (Finished(number, "c", 5, ((1, 2),)), StillOut(number, "c", ((2, 3),)), Told())
    for frame in (*facts, Finished(99, "c", 5, ())):
        pair.kept.say(frame)
    pair.move()
    assert heard == [("t", facts[0]), ("t", facts[1]), ("", facts[2])]

    released.append(True)
    pair.kept.released()
    pair.settle()
    assert pair.copied() == pair.at_home()


def test_a_keeper_knows_who_came_and_whether_it_left_for_good(pair):
    happened = []
    pair.keeping.came = lambda link: happened.append(("came", link.hello.identity))
    pair.keeping.went = lambda link, for_good: happened.append(("went", for_good))
    pair.connect()
    pair.move()
    pair.cut()
    pair.connect()
    pair.move()

    pair.link.leave("the home leaves")
    pair.move()

    who = pair.home.home.identity
    assert happened == [("came", who), ("went", False), ("came", who), ("went", True)]
