"""Opening a copy of another nsqd's log, and continuing with it after a crash of the carrier."""

import shutil

import pytest

from nsqd.engine import carried, facts
from nsqd.log.ids import MessageIds
from nsqd.log.ranges import without
from nsqd.storage.carried import forget_here, open_carried
from nsqd.storage.carried_store import HERE
from nsqd.storage.data_path import claim
from nsqd.storage.topic_store import store_of
from tests.support.engine import SECOND
from tests.support.machine import Machine

HOME_ID, CARRIER_ID = 3, 4


def answer(node, *line):
    assert node.answer(*line) == b""


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    node = Machine(tmp_path / "home", HOME_ID)
    node.channel()
    node.publish(*[b"%d" % number for number in range(10)])
    return node


@pytest.fixture
def first(home):
    return home.topic().log.next_seq - 10


@pytest.fixture
def carrier(tmp_path):
    (tmp_path / "carrier").mkdir()
    return Machine(tmp_path / "carrier", CARRIER_ID)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "carrier/carried/home/1/t.topic"


@pytest.fixture
def copy(home, folder):
    """Bring the copy up to date, as the stream does."""

    def bring():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(store_of(home.topic()).folder, folder, dirs_exist_ok=True)

    return bring


@pytest.fixture
def serve(carrier, folder):
    def open_and_attach(node=carrier, serves=None):
        topic = open_carried(node.data, node.broker, folder, "t", "home", HOME_ID)
        carried.attach(node.broker, topic, node.now_ns, serves)
        node.turn()
        return topic

    return open_and_attach


def bodies(outlet):
    return [body for _, _, body in outlet.taken()]


def all_of(node):
    _, outlet = node.subscribe(node.channel(), rdy=1000)
    return sorted(bodies(outlet), key=int)


@pytest.mark.parametrize("checkpointed", [True, False])
def test_a_copy_owes_what_its_home_owed(home, first, carrier, copy, serve, checkpointed):
    consumer, outlet = home.subscribe(home.channel(), rdy=4)
    for message_id, _, _ in outlet.taken()[1:3]:
        home.finish(consumer, message_id)
    if checkpointed:
        home.checkpoint(home.topic())
    home.publish(b"10", b"11")
    copy()

    topic = serve()

    finished = {b"1", b"2"} if checkpointed else set()
    assert all_of(carrier) == [b"%d" % number for number in range(12) if b"%d" % number not in finished]
    assert facts.had(topic) == [(first, first + 12)]
    assert topic.channels["c"].generation == home.channel().generation


def test_ids_are_those_of_the_home(home, first, carrier, copy, serve):
    copy()
    serve()
    _, outlet = carrier.subscribe(carrier.channel(), rdy=1)

    assert outlet.taken()[0][0] == MessageIds(HOME_ID).encode(first)


def test_opening_and_serving_changes_nothing_in_the_copy(carrier, copy, serve, folder):
    copy()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    topic = serve()
    all_of(carrier)
    carrier.broker.empty_channel(carrier.topic(), carrier.channel())
    carrier.checkpoint(topic)

    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != HERE}
    assert after == before


def test_a_carrier_goes_on_after_a_crash_with_what_it_had_finished(
    home, first, carrier, copy, serve, tmp_path
):
    copy()
    topic = serve()
    consumer, outlet = carrier.subscribe(carrier.channel(), rdy=6)
    ids = [message_id for message_id, _, _ in outlet.taken()]
    for message_id in ids[:3]:
        answer(carrier, consumer, b"FIN", message_id)
    answer(carrier, consumer, b"REQ", ids[3], b"60000")
    answer(carrier, consumer, b"REQ", ids[4], b"0")
    carrier.checkpoint(topic)

    again = Machine(tmp_path / "carrier", CARRIER_ID)
    topic = serve(again)

    _, outlet = again.subscribe(again.channel(), rdy=100, msg_timeout=600)
    given = {int(body): attempts for _, attempts, body in outlet.taken()}
    assert set(given) == {4, 5, 6, 7, 8, 9}
    # The message that was requeued had been delivered a second time.
    assert (given[4], given[5]) == (3, 2)
    again.advance(61)
    assert bodies(outlet) == [b"3"]
    assert facts.facts(topic, "c").finished == [(first, first + 3)]


def test_what_waited_at_a_paused_topic_is_given_out_when_a_carrier_that_let_it_flow_starts_anew(
    home, carrier, copy, serve, tmp_path
):
    home.broker.pause_topic(home.topic(), paused=True)
    home.turn()
    home.publish(b"10", b"11")
    copy()
    topic = serve()
    carrier.broker.pause_topic(carrier.topic(), paused=False)
    carrier.turn()
    carrier.checkpoint(topic)

    again = Machine(tmp_path / "carrier", CARRIER_ID)
    serve(again)

    assert all_of(again) == [b"%d" % number for number in range(12)]


def test_what_a_carrier_deleted_is_not_there_after_a_crash(carrier, copy, serve, tmp_path):
    copy()
    topic = serve()
    carrier.broker.delete_channel(carrier.topic(), "c")
    carrier.turn()
    carrier.checkpoint(topic)

    again = Machine(tmp_path / "carrier", CARRIER_ID)
    topic = serve(again)

    assert "c" not in topic.channels
    assert topic.gone


def test_a_channel_deleted_at_a_carrier_owes_what_its_home_published_to_it_since(
    home, carrier, copy, serve, folder, tmp_path
):
    copy()
    topic = serve()
    carrier.broker.delete_channel(carrier.topic(), "c")
    carrier.turn()
    carrier.checkpoint(topic)
    # The home has heard of the deletion, and continues with the channel.
    home.broker.empty_channel(home.topic(), home.channel())
    home.publish(b"new")
    copy()

    again = Machine(tmp_path / "carrier", CARRIER_ID)
    serve(again)

    _, outlet = again.subscribe(again.channel(), rdy=100)
    assert bodies(outlet) == [b"new"]


def test_a_channel_deleted_at_a_carrier_is_owed_what_waits_at_the_paused_topic_of_its_home(
    home, carrier, copy, serve, folder, tmp_path
):
    home.broker.pause_topic(home.topic(), paused=True)
    home.turn()
    copy()
    topic = serve()
    carrier.broker.delete_topic("t")
    carrier.checkpoint(topic)
    # The home has heard of the deletion, and keeps its channel.
    home.broker.empty_channel(home.topic(), home.channel())
    home.publish(b"new")
    copy()

    again = Machine(tmp_path / "carrier", CARRIER_ID)
    topic = open_carried(again.data, again.broker, folder, "t", "home", HOME_ID)

    waiting = topic.backlog.owed(0, topic.log.next_seq)
    assert [end - start for start, end in waiting] == [1]
    assert without(waiting, facts.all_facts(topic)["c"].finished) == waiting
    topic.paused = False
    topic.pump()
    assert topic.channels["c"].depth == 1


def test_a_topic_that_was_deleted_at_a_carrier_is_given_up_after_a_crash_but_for_what_came_since(
    home, carrier, copy, serve, folder, tmp_path
):
    copy()
    topic = serve()
    carrier.broker.delete_topic("t")
    carrier.checkpoint(topic)

    again = Machine(tmp_path / "carrier", CARRIER_ID)
    topic = open_carried(again.data, again.broker, folder, "t", "home", HOME_ID)
    assert topic.given_up
    assert facts.owed_by_any(topic) == []

    home.channel("new")
    home.publish(b"new")
    copy()
    topic = open_carried(again.data, again.broker, folder, "t", "home", HOME_ID)
    assert topic.given_up
    assert [end - start for start, end in facts.owed_by_any(topic)] == [1]


def test_a_channel_made_at_a_carrier_is_there_after_a_crash_with_what_it_owes(
    tmp_path, carrier, folder, serve
):
    (tmp_path / "home").mkdir()
    home = Machine(tmp_path / "home", HOME_ID)
    home.publish(b"0", b"1", b"2")
    folder.mkdir(parents=True)
    shutil.copytree(store_of(home.topic()).folder, folder, dirs_exist_ok=True)
    topic = serve()
    consumer, outlet = carrier.subscribe(carrier.channel("n"), rdy=2)
    answer(carrier, consumer, b"FIN", outlet.taken()[0][0])
    carrier.checkpoint(topic)
    generation = topic.channels["n"].generation

    again = Machine(tmp_path / "carrier", CARRIER_ID)
    topic = serve(again)

    assert topic.channels["n"].generation == generation
    _, outlet = again.subscribe(again.channel("n"), rdy=100)
    assert sorted(bodies(outlet)) == [b"1", b"2"]


def test_a_home_that_made_another_channel_since_does_not_hear_of_the_one_before(
    home, first, carrier, copy, serve
):
    copy()
    topic = serve()
    carrier.broker.empty_channel(carrier.topic(), carrier.channel())
    carrier.checkpoint(topic)
    carried.detach(carrier.broker, topic)
    home.broker.delete_channel(home.topic(), "c")
    home.turn()
    home.broker.channel(home.topic(), "c", [(first, first + 10)])
    home.publish(b"10")
    copy()

    topic = serve()

    assert all_of(carrier) == [b"%d" % number for number in range(11)]


def test_a_channel_that_the_home_deleted_since_is_not_made_again(home, carrier, copy, serve):
    copy()
    topic = serve()
    carrier.checkpoint(topic)
    carried.detach(carrier.broker, topic)
    home.broker.delete_channel(home.topic(), "c")
    home.turn()
    copy()

    serve()
    assert all_of(carrier) == []


def test_what_the_home_has_noted_need_not_be_remembered_here(carrier, copy, serve, folder):
    copy()
    topic = serve()
    carrier.checkpoint(topic)
    carried.detach(carrier.broker, topic)

    forget_here(carrier.data, folder)
    forget_here(carrier.data, folder)

    assert list((folder / HERE).iterdir()) == []


def test_what_was_never_filled_in_is_neither_lost_nor_finished(home, first, carrier, copy, serve, folder):
    for _ in range(10):
        home.publish(b"x" * 500)
    home.checkpoint(home.topic())
    copy()
    missing = sorted(folder.glob("*.log"))[1]
    missing.unlink()

    topic = serve()
    _, outlet = carrier.subscribe(carrier.channel(), rdy=1000)
    given = len(bodies(outlet))

    assert 10 <= given < 20
    hole = 20 - given
    assert topic.channels["c"].lost_count == 0
    assert sum(end - start for start, end in facts.had(topic)) == given
    carrier.broker.empty_channel(carrier.topic(), carrier.channel())
    assert sum(end - start for start, end in facts.facts(topic, "c").finished) == 20 - hole
    assert not [warning for warning in carrier.warnings if "lost" in warning]


def test_a_copy_without_its_beginning_and_without_a_checkpoint_knows_not_who_is_owed_it(
    home, first, copy, serve, folder
):
    for _ in range(10):
        home.publish(b"x" * 500)
    copy()
    assert not serve().unfounded

    min(folder.glob("*.log")).unlink()

    assert serve().unfounded
    home.checkpoint(home.topic())
    for path in folder.glob("*.log"):
        path.unlink()
    copy()
    min(folder.glob("*.log")).unlink()
    assert not serve().unfounded


def test_a_home_united_with_its_carrier_owes_the_rest(home, first, carrier, copy, serve, tmp_path):
    copy()
    topic = serve()
    consumer, outlet = carrier.subscribe(carrier.channel(), rdy=4)
    for message_id, _, _ in outlet.taken():
        answer(carrier, consumer, b"FIN", message_id)
    told = facts.facts(topic, "c")

    back = Machine(tmp_path / "home", HOME_ID)
    carried.learn(back.broker, back.topic(), "c", told, higher=False, stored=lambda: claim(back.topic()))
    back.turn()
    # The facts that the home learned are stored: a crash does not undo them.
    back = Machine(tmp_path / "home", HOME_ID)

    assert all_of(back) == [b"%d" % number for number in range(4, 10)]


def test_a_message_deferred_at_a_carrier_is_due_when_it_says_so_whatever_the_home_says(
    home, carrier, copy, serve, tmp_path
):
    copy()
    topic = serve()
    consumer, outlet = carrier.subscribe(carrier.channel(), rdy=1)
    (message_id, _, _) = outlet.taken()[0]
    answer(carrier, consumer, b"REQ", message_id, b"5000")
    consumer.rdy = 0
    carrier.checkpoint(topic)

    again = Machine(tmp_path / "carrier", CARRIER_ID)
    topic = serve(again)

    (due_ns, _) = next(iter(topic.channels["c"].deferred))
    assert due_ns == again.now_ns + 5 * SECOND
