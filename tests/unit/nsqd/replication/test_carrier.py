from pathlib import Path

import pytest

from nsqd.engine import carried, facts
from nsqd.engine.carried_topic import CarriedTopic
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import without
from nsqd.log.tail import NoSource
from nsqd.replication.carried_copy import CloseCopy
from nsqd.replication.carrier import Carrier
from nsqd.replication.holdings import Holdings
from nsqd.replication.serving import CopyPhase
from tests.support.copied import DATA
from tests.support.engine import SECOND, Node
from tests.support.simulated_disk import SimulatedDisk

HOME = bytes(range(16))
AFTER = 30 * SECOND


class Shelf:
    """Copies in memory: what each appointment has on the disk, and how it is recovered."""

    def __init__(self):
        # By appointment and topic: the first sequence, the bodies, and the finished ranges of each channel.
        self.files = {1: {"t": (100, [b"a", b"b", b"c"], {"c": []})}}
        self.fails = None
        # Topics that cannot be read.
        self.spoilt = set()
        # The ranges that the home of an appointment had lost, so that nobody is owed them.
        self.lost = {}
        self.hole = (0, 1)
        self.removed = []
        self.closed = []
        self.dropped = []
        # The note that the home is gone permanently.
        self.given = None
        self.full = False
        self.forgotten = []
        # Topics that were deleted at the carrier.
        self.given_up = set()
        # Appointments of which nobody here knows which channels are owed their messages.
        self.unfounded = set()
        self.places = {}
        self.disk = SimulatedDisk(DATA)

    # The calls of a carrier to the folders.

    def identities(self):
        return [HOME] if self.files else []

    def for_good(self, _identity):
        return self.given

    def appointments(self, _identity):
        return sorted(self.files)

    def topics(self, _identity, appointment):
        return sorted(self.files[appointment])

    def folder(self, _identity, appointment, name):
        return Folder(Path(str(appointment)) / name)

    def read(self, _identity, name):
        raise FileNotFoundError(name)

    def folder_of(self, identity):
        return DATA / identity.hex()

    def remove(self, _identity, appointment):
        self.removed.append(appointment)

    def forget(self, folder):
        self.forgotten.append(folder.path)

    # The recovery of the copies.

    def open(self, name, home, folder, _now_ns):
        if self.fails:
            raise self.fails
        if name in self.spoilt:
            raise OSError(5, "input/output error")
        first, bodies, channels = self.files[int(folder.parts[0])][name]
        topic = CarriedTopic(name, home.hex(), MessageIds(7), NoSource())
        topic.given_up = name in self.given_up
        topic.unfounded = int(folder.parts[0]) in self.unfounded
        topic.skip_to(first)
        for channel in channels:
            topic.add_channel(channel, generation=5 if topic.unfounded else 9)
        for body in bodies:
            topic.stage(body, 0)
        topic.staged()
        topic.commit()
        self.places[topic] = without([(first, first + len(bodies))], [self.hole])
        if int(folder.parts[0]) in self.lost:
            topic.log.had.take_out(*self.lost[int(folder.parts[0])])
        for channel, finished in channels.items():
            for start, end in finished:
                topic.channels[channel].finished.add(start, end)
        return topic

    def close(self, topic):
        self.closed.append(topic)
        if self.full:
            raise OSError(28, "no space left on device")

    def drop(self, topic):
        self.dropped.append(topic)

    def held(self, topic):
        return self.places[topic]


class Folder:
    def __init__(self, path):
        self.path = path


class Keeper:
    def __init__(self, files=None):
        self.node = Node()
        self.shelf = Shelf()
        self.shelf.files = files or self.shelf.files
        self.said = []
        self.carrier = Carrier(self.node.broker, self.shelf, self.shelf, AFTER, self.said.append)
        self.carrier.look(self.node.now_ns)

    def tick(self, seconds=0.0):
        """Let time pass, and run the jobs that are due."""
        self.node.now_ns += int(seconds * SECOND)
        for job in self.carrier.tick(self.node.now_ns, {HOME}):
            self.run(job)
        self.node.turn()

    def run(self, job):
        try:
            job.run(None)
        except OSError as error:
            self.carrier.ended(job, error, self.node.now_ns)
        else:
            self.carrier.ended(job, None, self.node.now_ns)

    def came(self):
        self.carrier.came(HOME, self.node.now_ns)

    def went(self, **more):
        self.carrier.went(HOME, self.node.now_ns, **more)

    def copy(self, appointment=1):
        return next(one for one in self.carrier.of(HOME) if one.serving.appointment == appointment)


@pytest.fixture
def keeper():
    return Keeper()


def bodies(outlet):
    return b"".join(sorted(body for _, _, body in outlet.taken()))


def test_a_home_that_does_not_come_is_carried(keeper):
    keeper.tick(29)
    assert "t" not in keeper.node.broker.topics

    keeper.tick(1)
    _, outlet = keeper.node.subscribe(keeper.node.channel(), 10)

    assert bodies(outlet) == b"abc"
    assert keeper.shelf.forgotten == [Path("1/t")]
    assert "3 messages wait" in keeper.said[0]


def test_a_copy_that_the_home_began_since_it_came_is_carried_when_it_has_gone(keeper):
    keeper.came()
    keeper.shelf.files[2] = {"new": (100, [b"a", b"b"], {"c": []})}

    keeper.went()
    keeper.tick(30)
    _, outlet = keeper.node.subscribe(keeper.node.channel(topic="new"), 10)

    assert bodies(outlet) == b"ab"


def test_a_copy_of_which_all_topics_were_deleted_is_forgotten(keeper):
    keeper.shelf.files[1] = {}

    keeper.tick(30)

    assert keeper.carrier.of(HOME) == []
    # It is still known that there was a copy, because its folder is not removed.
    assert keeper.shelf.removed == []


def test_what_a_home_says_it_has_deleted_is_not_given_out_when_it_is_gone_again(keeper):
    keeper.shelf.files[1]["u"] = (100, [b"d"], {"c": []})
    keeper.tick(30)
    topic = keeper.copy().topics["t"]
    keeper.node.subscribe(keeper.node.channel(), 1)
    keeper.node.turn()
    assert keeper.copy().in_flight() == {"t": {"c": [(100, 101)]}}

    keeper.came()
    keeper.carrier.deleted(HOME, "t")
    keeper.went()
    keeper.tick(30)

    assert keeper.copy().phase is CopyPhase.CARRIED
    assert (list(keeper.copy().topics), keeper.shelf.dropped) == (["u"], [topic])
    assert keeper.copy().in_flight() == {}
    _, outlet = keeper.node.subscribe(keeper.node.channel(), 10)
    assert bodies(outlet) == b""
    _, outlet = keeper.node.subscribe(keeper.node.channel(topic="u"), 10)
    assert bodies(outlet) == b"d"


def test_of_two_copies_here_one_that_was_never_whole_keeps_nothing_back_and_believes_the_other():
    files = {
        1: {"t": (100, [b"a", b"b", b"c"], {"c": [(100, 101)]})},
        2: {"t": (100, [b"a", b"b", b"c"], {"c": [(100, 103)]})},
    }
    keeper = Keeper(files)
    keeper.shelf.unfounded = {2}
    older, newer = keeper.copy(1), keeper.copy(2)

    keeper.run(*keeper.carrier._open(newer, keeper.node.now_ns))
    assert newer.topics["t"].unfounded
    keeper.run(*keeper.carrier._open(older, keeper.node.now_ns))

    assert not newer.topics["t"].unfounded
    depths = [one.topics["t"].channels["c"].depth for one in (older, newer)]
    assert sorted(depths) == [0, 2]


def test_a_home_that_is_here_is_not(keeper):
    keeper.came()

    keeper.tick(600)

    assert keeper.copy().phase is CopyPhase.KEPT
    assert keeper.carrier.is_released(HOME)


def test_the_time_begins_when_the_home_goes(keeper):
    keeper.came()
    keeper.tick(600)
    keeper.went()

    keeper.tick(29)
    assert keeper.copy().phase is CopyPhase.KEPT
    keeper.tick(1)
    assert keeper.copy().phase is CopyPhase.CARRIED


def test_a_home_that_leaves_for_good_is_carried_at_once(keeper):
    keeper.came()
    keeper.went(for_good=True)

    keeper.tick()

    assert keeper.copy().phase is CopyPhase.CARRIED


def test_the_home_goes_on_when_the_last_in_flight_was_answered(keeper):
    keeper.tick(30)
    consumer, outlet = keeper.node.subscribe(keeper.node.channel(), 2)
    assert len(outlet.taken()) == 2
    (topic,) = keeper.copy().topics.values()

    keeper.came()
    keeper.tick()
    keeper.node.ready(consumer, 10)
    assert outlet.taken() == []
    assert not keeper.carrier.is_released(HOME)
    assert keeper.carrier.to_tell(HOME, keeper.node.now_ns) == {"t": [topic]}
    assert carried.in_flight(topic) == {"c": [(100, 102)]}
    assert keeper.carrier.to_tell(HOME, keeper.node.now_ns) is None

    topic.channels["c"].finish(100, consumer, keeper.node.now_ns)
    topic.channels["c"].requeue(101, consumer, 0, keeper.node.now_ns)
    (job,) = keeper.carrier.tick(keeper.node.now_ns, {HOME})
    # These are the last facts, told before the home may continue.
    assert keeper.carrier.to_tell(HOME, keeper.node.now_ns) == {"t": [topic]}
    assert facts.all_facts(topic)["c"].finished == [(100, 101)]
    keeper.run(job)

    assert keeper.carrier.is_released(HOME)
    assert keeper.shelf.closed == [topic]
    assert keeper.copy().phase is CopyPhase.KEPT
    assert keeper.node.topic().carried == []


def test_a_copy_is_not_put_away_before_the_home_can_hear_the_last_word(keeper):
    keeper.tick(30)
    keeper.came()

    assert keeper.carrier.tick(keeper.node.now_ns, ()) == []
    assert len(keeper.carrier.tick(keeper.node.now_ns, {HOME})) == 1


def test_a_home_that_goes_while_it_returns_is_carried_on(keeper):
    keeper.tick(30)
    keeper.node.subscribe(keeper.node.channel(), 1)
    keeper.came()
    keeper.tick()

    keeper.went()
    keeper.tick()
    _, outlet = keeper.node.subscribe(keeper.node.channel(), 10)

    assert bodies(outlet) == b"bc"


def test_a_home_that_goes_while_its_copy_is_put_away_is_carried_again(keeper):
    keeper.tick(30)
    keeper.came()
    (job,) = keeper.carrier.tick(keeper.node.now_ns, {HOME})
    # The thread that puts the copy away is still at work.
    keeper.went()

    keeper.run(job)
    assert keeper.copy().phase is CopyPhase.KEPT
    keeper.tick(30)
    _, outlet = keeper.node.subscribe(keeper.node.channel(), 10)

    assert bodies(outlet) == b"abc"


def test_a_home_that_came_and_went_while_a_topic_was_opened_is_carried_on(keeper):
    keeper.shelf.files[1]["u"] = (100, [b"d"], {"c": []})
    keeper.shelf.spoilt = {"u"}
    keeper.tick(30)
    keeper.node.now_ns += 5 * SECOND
    (job,) = keeper.carrier.tick(keeper.node.now_ns, {HOME})
    keeper.came()
    keeper.went()

    keeper.run(job)
    keeper.tick()
    _, outlet = keeper.node.subscribe(keeper.node.channel(), 10)

    assert bodies(outlet) == b"abc"


def test_a_home_that_comes_while_its_copy_is_opened_finds_it_as_it_was(keeper):
    keeper.node.now_ns += AFTER
    (job,) = keeper.carrier.tick(keeper.node.now_ns, {HOME})
    keeper.came()
    assert not keeper.carrier.is_released(HOME)

    keeper.run(job)

    assert keeper.carrier.is_released(HOME)
    assert len(keeper.shelf.closed) == 1
    assert "t" not in keeper.node.broker.topics


def test_on_a_full_disk_a_copy_that_nobody_was_given_is_put_away_all_the_same(keeper):
    keeper.shelf.full = True
    keeper.node.now_ns += AFTER
    (job,) = keeper.carrier.tick(keeper.node.now_ns, {HOME})
    keeper.came()

    keeper.run(job)

    assert keeper.carrier.is_released(HOME)
    assert "t" not in keeper.node.broker.topics


def test_a_copy_that_cannot_be_opened_is_tried_again_and_told_once(keeper):
    keeper.shelf.fails = OSError(5, "input/output error")
    for _ in range(5):
        keeper.tick(30)
    assert len(keeper.said) == 1

    keeper.shelf.fails = None
    keeper.tick(5)

    assert keeper.copy().phase is CopyPhase.CARRIED


def test_a_topic_that_cannot_be_read_keeps_no_other_one_from_being_given_out(keeper):
    keeper.shelf.files[1]["u"] = (100, [b"d"], {"c": []})
    keeper.shelf.spoilt = {"u"}
    keeper.tick(30)
    _, outlet = keeper.node.subscribe(keeper.node.channel(), 10)
    assert bodies(outlet) == b"abc"
    assert keeper.copy().troubles == {"u": "[Errno 5] input/output error"}
    assert "topic u of the copy cannot be given out" in keeper.said[0]
    said = len(keeper.said)

    for _ in range(3):
        keeper.tick(5)
    assert len(keeper.said) == said
    keeper.shelf.spoilt = set()
    keeper.tick(5)
    _, outlet = keeper.node.subscribe(keeper.node.channel(topic="u"), 10)

    assert bodies(outlet) == b"d"
    assert keeper.copy().troubles == {}
    keeper.came()
    keeper.tick()
    assert not keeper.carrier.is_released(HOME)


def test_a_topic_that_is_read_when_the_home_is_back_is_not_given_out(keeper):
    keeper.shelf.files[1]["u"] = (100, [b"d"], {"c": []})
    keeper.shelf.spoilt = {"u"}
    keeper.tick(30)
    keeper.shelf.spoilt = set()
    keeper.node.now_ns += 5 * SECOND
    (job,) = keeper.carrier.tick(keeper.node.now_ns, {HOME})
    keeper.came()
    assert not keeper.carrier.is_released(HOME)

    keeper.run(job)
    keeper.tick()

    assert keeper.carrier.is_released(HOME)
    assert "u" not in keeper.node.broker.topics


def test_a_folder_that_cannot_be_looked_into_is_looked_into_again(keeper):
    topics = keeper.shelf.topics
    keeper.shelf.topics = lambda *_: fails(None)
    keeper.tick(30)
    assert keeper.copy().troubles == {"": "[Errno 28] no space left on device"}

    keeper.shelf.topics = topics
    keeper.tick(5)

    assert keeper.copy().phase is CopyPhase.CARRIED


def test_an_older_copy_goes_though_its_channels_owe_what_was_never_filled_in(keeper):
    keeper.shelf.files = {1: {"t": (100, [b"a", b"b"], {"c": []})}, 2: {"t": (100, [b"a"], {})}}
    # The checkpoint of copy 1 tells of both messages, but the home never sent the second.
    keeper.shelf.hole = (101, 102)
    keeper.came()
    keeper.carrier.began(HOME, 2, keeper.node.now_ns, has_topics=True)
    keeper.carrier.answered(HOME, Holdings({"t": [(100, 101)]}, {"t": {}}))
    keeper.tick(30)
    keeper.tick()

    assert keeper.shelf.removed == [1]


def test_an_older_copy_stays_while_a_topic_of_it_cannot_be_read(keeper):
    keeper.shelf.files = {
        1: {"t": (100, [b"a"], {"c": []}), "u": (5, [b"d"], {"c": []})},
        2: {"t": (100, [b"a"], {})},
    }
    keeper.shelf.spoilt = {"u"}
    keeper.came()
    keeper.carrier.began(HOME, 2, keeper.node.now_ns, has_topics=True)
    keeper.carrier.answered(HOME, Holdings({"t": [(100, 101)]}, {"t": {}}))
    keeper.tick(30)
    keeper.tick()
    assert keeper.copy(1).phase is CopyPhase.CARRIED

    keeper.shelf.spoilt = set()
    keeper.tick(5)
    _, outlet = keeper.node.subscribe(keeper.node.channel(topic="u"), 10)

    assert bodies(outlet) == b"d"


def test_of_two_copies_here_the_later_gives_out_what_both_have_and_each_knows_what_the_other_finished():
    keeper = Keeper()
    keeper.shelf.files = {
        1: {"t": (98, [b"1", b"2", b"a", b"b"], {"c": [(98, 99)]})},
        2: {"t": (100, [b"a", b"b", b"c"], {"c": [(101, 102)]})},
    }
    keeper.carrier.look(keeper.node.now_ns)

    keeper.tick(30)
    _, outlet = keeper.node.subscribe(keeper.node.channel(), 10)

    assert bodies(outlet) == b"2ac"
    assert keeper.copy(1).serving.stale


def test_what_the_later_copy_only_speaks_for_the_earlier_gives_out():
    keeper = Keeper()
    keeper.shelf.files = {
        1: {"t": (100, [b"a", b"b", b"c"], {"c": []})},
        # The home had lost the second message, and merged the files around it.
        2: {"t": (100, [b"a", b"lost", b"c"], {"c": [(101, 102)]})},
    }
    keeper.shelf.lost = {2: (101, 102)}
    keeper.carrier.look(keeper.node.now_ns)

    keeper.tick(30)
    _, outlet = keeper.node.subscribe(keeper.node.channel(), 10)

    assert bodies(outlet) == b"abc"


def test_what_fails_to_be_noted_is_told_and_the_home_goes_on(keeper):
    keeper.tick(30)
    keeper.came()
    keeper.shelf.close = fails

    keeper.tick()

    assert keeper.carrier.is_released(HOME)
    assert "failed to note" in keeper.said[-1]


def fails(_topic):
    raise OSError(28, "no space left on device")


def test_to_put_away_goes_on_behind_one_that_fails():
    shelf = Shelf()
    closed = []

    class Once:
        def close(self, topic):
            closed.append(topic)
            if topic == 1:
                raise OSError(28, "no space")

    with pytest.raises(OSError, match="no space"):
        CloseCopy(None, [1, 2], Once()).run(None)

    assert closed == [1, 2]
    assert shelf.closed == []


# --- what is another node's by now ---


def given_away(keeper):
    keeper.tick(30)
    keeper.carrier.give_away(HOME)


def test_what_was_given_away_goes_though_what_was_finished_cannot_be_noted(keeper):
    keeper.shelf.full = True

    given_away(keeper)
    keeper.tick()

    assert keeper.carrier.of(HOME) == []
    assert keeper.shelf.removed == [1]


def test_what_was_given_away_and_cannot_be_removed_is_tried_again(keeper):
    remove = keeper.shelf.remove
    keeper.shelf.remove = lambda *_: fails(None)
    given_away(keeper)
    for _ in range(3):
        keeper.tick()
    assert keeper.copy().phase is CopyPhase.KEPT
    assert sum("failed to remove" in one for one in keeper.said) == 1

    keeper.shelf.remove = remove
    keeper.tick(5)

    assert keeper.carrier.of(HOME) == []


def test_what_is_given_away_while_it_is_opened_is_not_given_out(keeper):
    keeper.node.now_ns += AFTER
    (job,) = keeper.carrier.tick(keeper.node.now_ns, {HOME})
    keeper.carrier.give_away(HOME)

    keeper.run(job)
    keeper.tick(5)

    assert "t" not in keeper.node.broker.topics
    assert keeper.carrier.of(HOME) == []


def test_a_home_that_comes_before_what_was_given_away_is_gone_goes_on_with_it(keeper):
    given_away(keeper)
    keeper.came()
    keeper.tick()

    assert keeper.shelf.removed == []
    assert keeper.carrier.is_released(HOME)
    assert not keeper.carrier.was_given_away(HOME)


def test_no_topic_is_made_for_one_that_was_deleted_here_while_nobody_is_owed_anything_of_it(keeper):
    keeper.shelf.files[1]["t"] = (100, [], {})
    keeper.shelf.files[1]["u"] = (100, [b"new"], {"c": []})
    keeper.shelf.given_up = {"t", "u"}

    keeper.tick(30)

    # The home has written to topic u since.
    assert list(keeper.node.broker.topics) == ["u"]
    assert sorted(keeper.copy().topics) == ["t", "u"]


@pytest.mark.parametrize(
    ("newer", "lost", "more"),
    [
        ([b"a", b"b", b"c", b"d"], {}, False),
        # The third message was never in the newer copy; in the last case the second is lost there.
        ([b"a", b"b"], {}, True),
        ([b"a", b"b", b"c"], {2: (101, 102)}, True),
    ],
)
def test_an_older_copy_is_worth_handing_over_only_for_what_the_newer_one_has_not(newer, lost, more):
    keeper = Keeper(
        {1: {"t": (100, [b"a", b"b", b"c"], {"c": []})}, 2: {"t": (100, newer, {"c": []})}},
    )
    keeper.shelf.lost = lost
    for _ in range(4):
        keeper.tick(30)
    newest, older = keeper.carrier.of(HOME)
    assert {newest.phase, older.phase} == {CopyPhase.CARRIED}

    assert keeper.carrier.owes_more(older, newest) is more


def test_an_older_copy_with_a_topic_of_its_own_owes_more_until_that_is_finished():
    keeper = Keeper(
        {1: {"u": (100, [b"a"], {"c": []})}, 2: {"t": (100, [b"a"], {"c": []})}},
    )
    for _ in range(4):
        keeper.tick(30)
    newest, older = keeper.carrier.of(HOME)
    assert keeper.carrier.owes_more(older, newest)

    older.topics["u"].channels["c"].empty()

    assert not keeper.carrier.owes_more(older, newest)
