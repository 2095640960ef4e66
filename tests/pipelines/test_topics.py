"""Several topics in one query, by a list or by a pattern, including topics that are created later."""

import re
from itertools import count

import pytest

from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.stream_reader import NsqStreamReader
from tests.pipelines.conftest import depth
from tests.pipelines.streams import ALL, positions, rows_of

_families = count()


@pytest.fixture
def family(nodes):
    """The prefix of two topic names; each topic has a message on each nsqd."""
    family = f"family-{next(_families)}-"
    for number, nsqd in enumerate(nodes.nsqds):
        for topic in ("a", "b"):
            nodes.publish(nsqd, family + topic, b"%d%b" % (number, topic.encode()))
    return family


def options(nodes, **changes):
    given = nodes.options("")
    del given["topic"]
    return {**given, **changes}


def reader_of(nodes, **changes):
    from pyspark_nsq.source.options import SourceOptions

    return NsqStreamReader(SourceOptions.parse(options(nodes, **changes)))


def rows(reader, start, end):
    return sorted((row["topic"], row["body"]) for row in rows_of(reader, start, end))


@pytest.mark.parametrize("how", ["list", "pattern"])
def test_all_topics_are_read_and_acknowledged(nodes, family, how):
    chosen = {"topic": f"{family}a, {family}b"} if how == "list" else {"topicPattern": f"{family}[ab]"}
    reader = reader_of(nodes, **chosen)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)

    assert rows(reader, start, end) == [
        (family + "a", b"0a"),
        (family + "a", b"1a"),
        (family + "b", b"0b"),
        (family + "b", b"1b"),
    ]
    assert list(positions(end)) == sorted(
        f"{family}{topic}@{nsqd.http_address}" for topic in "ab" for nsqd in nodes.nsqds
    )

    reader.commit(end)
    assert [depth(nsqd, family + topic) for nsqd in nodes.nsqds for topic in "ab"] == [0] * 4


def test_topic_that_comes_later_joins(nodes, family):
    reader = reader_of(nodes, topicPattern=f"{family}.*")
    start = reader.initialOffset()
    nodes.publish(nodes.nsqds[0], f"{family}c", b"new")
    joined = reader.latestOffset(start, ALL)
    end = reader.latestOffset(joined, ALL)

    assert rows(reader, joined, end) == [(f"{family}c", b"new")]


def test_pattern_that_no_topic_matches_is_named(nodes):
    sentence = re.escape("topic matching 'nothing-.*' does not exist: no nsqlookupd has heard of it")
    with pytest.raises(SourceError, match=sentence):
        reader_of(nodes, topicPattern="nothing-.*").initialOffset()
