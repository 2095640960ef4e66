"""The list of rows: each row can be chosen, by itself or with its group."""

import pytest

from bench.rows import GROUPS, PARTS, ROWS, USUAL, chosen
from bench.rows.seed import seed, topic_name
from bench.rows.work import batch_of
from nsqd.log.disk import Disk
from nsqd.storage import metadata


def test_no_two_rows_or_groups_share_a_name():
    assert len(ROWS) == sum(len(rows) for rows in GROUPS.values())
    assert not set(ROWS) & set(GROUPS)


def test_rows_come_once_in_the_order_of_their_naming():
    assert [row.name for row in chosen("sub,bodies,body1k,mpub")] == [
        "sub",
        "body1k",
        "body64k",
        "body1m",
        "mpub",
    ]


def test_the_parts_are_the_whole():
    assert [row.name for part in PARTS for row in chosen(part)] == [row.name for row in chosen(USUAL)]


def test_an_unknown_name_is_told():
    with pytest.raises(KeyError, match="nonsense"):
        chosen("sub,nonsense")


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_has_figures_of_different_names(row):
    assert row.figures
    assert len({figure.name for figure in row.figures}) == len(row.figures)


def test_long_bodies_are_published_in_small_batches():
    assert [batch_of(size) for size in (None, 200, 1024, 65_536, 1_000_000)] == [200, 200, 62, 1, 1]


def test_seeded_topics_are_what_an_original_would_have_left(tmp_path):
    seed(tmp_path, 3)

    topics = metadata.load(Disk(), tmp_path, [].append).topics
    assert [topic.name for topic in topics] == [topic_name(number) for number in range(3)]
    assert all(topic.channels == [("a", False), ("b", False), ("c", False)] for topic in topics)
