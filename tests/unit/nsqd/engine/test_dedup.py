import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.engine.dedup import DedupBudget, DedupWindow, key_of
from nsqd.engine.settings import NOTHING, Settings
from nsqd.engine.topic import Refused
from nsqd.log.encoder import Batch
from nsqd.log.headers import checked_extension, extension, join
from tests.support.engine import SECOND, Node

WINDOW = 10 * SECOND


def said(name):
    return extension({"dedup-id": name})


@pytest.fixture
def node():
    node = Node()
    node.broker.apply(lambda topic, channel: Settings(dedup_window_ns=0 if channel else WINDOW))
    return node


def publish(node, *names, topic="t"):
    """Publish a message for each id, with the id as its body; an empty id means a message without one."""
    target = node.topic(topic)
    for name in names:
        target.stage(name.encode() or b"-", node.now_ns, extension=said(name) if name else b"")
    node.broker.dirty[target] = None
    node.turn()


def bodies(node, topic="t"):
    channel = node.channel(topic=topic)
    consumer, outlet = node.subscribe(channel, rdy=1000)
    got = [body for _, _, body in outlet.taken()]
    channel.unsubscribe(consumer)
    channel.empty()
    return got


def test_second_publish_of_id_stores_nothing(node):
    node.channel()
    publish(node, "a", "b", "a")
    publish(node, "b", "c", "a")

    assert bodies(node) == [b"a", b"b", b"c"]
    assert node.topic().published.repeated == 3


def test_messages_without_id_are_all_stored(node):
    node.channel()
    publish(node, "", "", "")
    topic = node.topic()
    for _ in range(2):
        topic.stage(b"x", node.now_ns, extension=extension({"other": "dedup-id"}))
    node.broker.dirty[topic] = None
    node.turn()

    assert len(bodies(node)) == 5


@pytest.mark.parametrize("hours", [0, 1, -1])
def test_dedup_id_is_free_after_window_whatever_clock_is_set_to(node, hours):
    node.channel()
    publish(node, "a")
    node.broker.wall.offset_ns += hours * 3600 * SECOND
    node.advance(9.999)
    publish(node, "a")
    assert bodies(node) == [b"a"]

    # The window begins with the stored publish; the repeat did not extend it.
    node.advance(0.001)
    publish(node, "a")
    assert bodies(node) == [b"a"]


def test_batch_keeps_what_is_new_in_it(node):
    node.channel()
    publish(node, "a")
    names = ["a", "b", "", "b", "c"]
    messages = [join({"dedup-id": name} if name else {}, name.encode() or b"-") for name in names]
    size = sum(len(said(name)) if name else 1 for name in names)
    topic = node.topic()
    topic.stage_batch(Batch(messages, has_headers=True, extension_bytes=size), node.now_ns)
    topic.stage_batch(Batch(messages[:2], has_headers=True, extension_bytes=2 * len(said("a"))), node.now_ns)
    node.broker.dirty[topic] = None
    node.turn()

    assert bodies(node) == [b"a", b"b", b"-", b"c"]
    assert topic.published.repeated == 4
    assert topic.message_bytes == 4


def test_id_that_was_not_stored_may_be_published_again(node):
    node.channel()
    topic = node.topic()
    topic.stage(b"a", node.now_ns, extension=said("a"))
    topic.stage(b"a", node.now_ns, extension=said("a"))
    topic.abandon()

    publish(node, "a")

    assert bodies(node) == [b"a"]


def test_id_that_was_refused_may_be_published_again(node):
    class Full:
        def admit(self, count, size):
            raise Refused("topic is full")

    node.channel()
    topic = node.topic()
    publish(node, "a")
    topic.bind(Full())
    with pytest.raises(Refused):
        topic.stage(b"b", node.now_ns, extension=said("b"))
    with pytest.raises(Refused):
        topic.stage_batch(Batch([join({"dedup-id": "b"}, b"b")], has_headers=True), node.now_ns)
    # A repeat stores nothing, so it needs no room.
    topic.stage(b"a", node.now_ns, extension=said("a"))
    topic.bind(None)

    publish(node, "b")

    assert bodies(node) == [b"a", b"b"]


def test_deferred_message_counts_from_its_publishing(node):
    node.channel()
    topic = node.topic()
    for _ in range(2):
        topic.stage(b"later", node.now_ns, node.now_ns + SECOND, said("a"))
    node.broker.dirty[topic] = None
    node.turn()
    node.advance(2)

    assert bodies(node) == [b"later"]


def test_ids_are_those_of_one_topic(node):
    publish(node, "a", topic="one")
    publish(node, "a", topic="two")

    assert [node.topic(name).published.repeated for name in ("one", "two")] == [0, 0]


def test_dedup_without_policy_remembers_no_ids(node):
    node.channel()
    publish(node, "a")
    assert node.broker._room.used == 1

    node.broker.apply(lambda topic, channel: NOTHING)
    publish(node, "a", "a")

    assert bodies(node) == [b"a", b"a", b"a"]
    assert node.topic().published is None
    assert node.broker._room.used == 0


def test_deleted_topic_gives_its_room_back(node):
    publish(node, "a", "b")
    node.broker.delete_topic("t")

    assert node.broker._room.used == 0


def test_changed_dedup_window_counts_for_earlier_publishes(node):
    node.channel()
    publish(node, "a")
    node.broker.apply(lambda topic, channel: Settings(dedup_window_ns=60 * SECOND))
    node.advance(30)
    publish(node, "a")

    assert bodies(node) == [b"a"]


def test_dedup_ids_are_loaded_from_log(node):
    publish(node, "", "old")
    node.advance(6)
    publish(node, "a", "", "b")
    node.advance(5)
    found = DedupWindow(WINDOW, DedupBudget())

    found.load(node.topic().log, node.topic().wall, node.now_ns)

    # The scan may read a little more than the window; ids that are too old do not count.
    assert [name for name in ("old", "a", "b") if found.has(key_of(said(name)), node.now_ns)] == ["a", "b"]


def test_dedup_ids_from_future_count_as_published_at_start(node):
    publish(node, "a")
    wall = node.topic().wall
    wall.offset_ns -= 3600 * SECOND
    found = DedupWindow(WINDOW, DedupBudget())

    found.load(node.topic().log, wall, node.now_ns)

    a = key_of(said("a"))
    assert found.has(a, node.now_ns + WINDOW - 1)
    assert not found.has(a, node.now_ns + WINDOW)


def test_dedup_forgets_ids_that_disk_may_lack(node):
    node.channel()
    publish(node, "a")
    node.topic().published.forget()
    publish(node, "a")

    assert bodies(node) == [b"a", b"a"]
    assert node.broker._room.used == 1


def test_oldest_ids_make_room():
    room = DedupBudget()
    room.max_ids = 3
    one, other = DedupWindow(WINDOW, room), DedupWindow(WINDOW, room)
    for key in range(3):
        one.remember(key, key)
    other.remember(0, 3)
    assert (room.used, other.forgotten, len(other)) == (3, 1, 0)

    one.remember(3, 4)

    assert (room.used, one.forgotten) == (3, 1)
    assert [one.has(key, 5) for key in range(4)] == [False, True, True, True]


@pytest.mark.parametrize(
    ("encoded", "has"),
    [
        (b'{"dedup-id":"x"}', True),
        (b'{"dedup\\u002did":"x"}', True),
        (b'{"dedup-id":""}', True),
        (b'{"Dedup-Id":"x"}', False),
        (b'{"a":"dedup-id"}', False),
        (b"{}", False),
    ],
)
def test_id_is_header(encoded, has):
    assert (key_of(checked_extension(encoded)) is not None) == has


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 6)), max_size=60))
def test_dedup_agrees_with_table_of_times(publishes):
    room, table, now = DedupBudget(), {}, 1000
    published = DedupWindow(10, room)
    for name, later in publishes:
        now += later
        key = ord(name)
        expected = name in table and now - table[name] < 10
        assert published.has(key, now) == expected
        if not expected:
            published.stage(key, now)
            table[name] = now
    assert room.used == len(published) <= 5


@pytest.mark.parametrize("sent_back", [False, True])
def test_moved_messages_are_stored_whatever_their_id(node, sent_back):
    node.channel()
    publish(node, "a")
    topic, batch = node.topic(), Batch([join({"dedup-id": "a"}, b"moved")], has_headers=True)
    if sent_back:
        topic.stage_for("c", batch, node.now_ns)
    else:
        topic.stage_batch(batch, node.now_ns, moved=True)
    node.broker.dirty[topic] = None
    node.turn()

    assert bodies(node) == [b"a", b"moved"]
