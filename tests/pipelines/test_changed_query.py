"""A query with a checkpoint is started again with other topics or another channel."""

import json
import re
from collections import Counter

import pytest

from tests.pipelines.conftest import Nodes, depth
from tests.pipelines.mini import Query

pytestmark = pytest.mark.slow


class Topics:
    """A cluster with topics that a query reads, and the messages published on each."""

    def __init__(self, cluster):
        self.nodes = Nodes(cluster)
        self.published = {}

    def publish(self, topic, first=0, count=100):
        for number, nsqd in enumerate(self.nodes.nsqds):
            if first == 0:
                nsqd.post(f"/topic/create?topic={topic}")
                nsqd.post(f"/channel/create?topic={topic}&channel=other")
            bodies = [b"%b %d %d" % (topic.encode(), number, one) for one in range(first, first + count)]
            self.nodes.publish(nsqd, topic, *bodies)
            self.published.setdefault(topic, Counter()).update(bodies)

    def query(self, topic, **options):
        return Query(self.nodes, topic, {"startingOffsets": "earliest", **options})

    def stored_once(self, query, *topics):
        assert Counter(query.bodies) == sum((self.published[topic] for topic in topics), Counter())


@pytest.fixture
def topics(cluster):
    topics = Topics(cluster)
    for name in ("a", "b"):
        topics.publish(name)
    return topics


def run(query, topic=None, times=3, **options):
    """Run several times: the first batch with a new log finds it, and the next one reads it."""
    query.topic = query.topic if topic is None else topic
    return [sentence for _ in range(times) if (sentence := query.run(**options))]


@pytest.mark.parametrize("die", ["", "planned", "stored"])
def test_topic_added_to_query_is_read_once(topics, die):
    query = topics.query("a")
    assert query.run(limit=60, batches=1) == ""
    if die:
        assert query.run(limit=30, die=die) == "killed"
    topics.publish("a", 100, 5)

    assert run(query, "a,b") == []
    topics.stored_once(query, "a", "b")
    assert [depth(nsqd, topic) for nsqd in topics.nodes.nsqds for topic in "ab"] == [0] * 4


def test_topic_removed_from_query_is_read_after_it_is_added_again(topics, caplog):
    query = topics.query("a,b")
    assert run(query) == []
    for topic in ("a", "b"):
        topics.publish(topic, 100, 5)
    # The last batch is stored, and not acknowledged yet.
    assert query.run(limit=8, die="stored") == "killed"
    stored = Counter(query.bodies)

    assert run(query, "a") == []
    new = Counter(query.bodies) - stored
    assert new
    assert all(body.startswith(b"a ") for body in new)
    assert "topic 'b' of nsqd" in caplog.text
    assert "is no longer read" in caplog.text

    assert run(query, "a,b") == []
    topics.stored_once(query, "a", "b")


@pytest.mark.parametrize(
    ("topic", "options", "wanted", "die"),
    [
        ("b", {}, "reads topic 'b' on channel 'archive'", ""),
        ("b", {"failOnDataLoss": "false"}, "reads topic 'b' on channel 'archive'", "stored"),
        ("a", {"channel": "second"}, "reads topic 'a' on channel 'second'", "stored"),
    ],
    ids=["topic", "topic, and loss is accepted", "channel"],
)
def test_checkpoint_of_another_topic_or_channel_is_refused(topics, topic, options, wanted, die):
    query = topics.query("a")
    assert query.run(limit=60, batches=1) == ""
    if die:
        assert query.run(limit=30, die=die) == "killed"
    before = query.bodies

    (first, *_) = sentences = run(query, topic, **options)
    assert re.match(r"the checkpoint is of topic 'a' and channel 'archive', but the query ", first)
    assert wanted in first
    assert len(sentences) == 3
    assert query.bodies == before

    assert run(query, "a") == []
    topics.stored_once(query, "a")


@pytest.mark.parametrize("planned", [False, True], ids=["read", "planned with it"])
def test_deleted_topic_is_named_until_it_is_forgotten(topics, planned):
    query = topics.query("a,b")
    if planned:
        assert query.run(limit=400, die="planned") == "killed"
    else:
        assert run(query) == []
    for nsqd in topics.nodes.nsqds:
        nsqd.post("/topic/delete?topic=b")
    topics.publish("a", 100, 5)

    (sentence, *_) = run(query)
    assert re.search(r"has no topic 'b' any more|of topic 'b' any more: it has no such topic now", sentence)
    assert run(query, forgetTopics="b") == []
    assert run(query, "a") == []
    topics.stored_once(query, *(("a",) if planned else ("a", "b")))


def test_recreated_topic_of_pattern_is_read_after_it_was_forgotten(topics):
    query = topics.query("")
    del topics.published["b"]
    everything = {"topicPattern": "[ab]"}
    assert run(query, **everything) == []
    before = Counter(query.bodies)
    for nsqd in topics.nodes.nsqds:
        nsqd.post("/topic/delete?topic=b")
    topics.publish("b")

    (sentence, *_) = run(query, **everything)
    assert "what lies between is gone" in sentence or "replaced" in sentence
    assert run(query, **everything, forgetTopics="b") == []
    assert run(query, **everything) == []
    assert Counter(query.bodies) - before == topics.published["b"]


def test_topic_with_unread_messages_is_not_forgotten(topics):
    query = topics.query("a,b")
    assert run(query) == []
    topics.publish("b", 100, 5)

    (sentence, *_) = run(query, forgetTopics="b")
    assert re.match(
        r"option forgetTopics has topic 'b' of nsqd \S+, which answers, "
        r"and the query has not read 5 of its messages",
        sentence,
    )
    assert run(query) == []
    topics.stored_once(query, "a", "b")


@pytest.mark.parametrize(("topic", "die"), [("a", ""), ("a", "planned"), ("a,b", "stored")])
def test_checkpoint_without_topic_and_channel_is_read(topics, topic, die):
    query = topics.query("a")
    assert query.run(limit=60, batches=2) == ""
    if die:
        assert query.run(limit=30, die=die) == "killed"
    earlier = [text.replace("a@", "").replace('"channel": "archive", ', "") for text in query.offsets]
    assert earlier != query.offsets
    assert "@" not in "".join(earlier)
    assert all(set(json.loads(text)) - {"data_paths", "cuts", "counts"} for text in earlier)
    query.offsets = earlier
    topics.publish("a", 100, 5)

    if topic == "a,b":
        (sentence, *_) = run(query, topic)
        assert "does not name its topic: run the query once with that topic alone" in sentence
    assert run(query, "a", times=1) == []
    assert run(query, topic) == []
    topics.stored_once(query, *topic.split(","))
