import pytest

from nsqcore.http.api import ApiError
from nsqd.engine.message_status import MessageState
from nsqd.log.cursor import LogPosition, PositionKind
from nsqd.log.ids import MessageIds
from nsqd.server.messages.query import parse_query

IDS = MessageIds(5)
NOW_NS = 1_700_000_000_000_000_000


def parse(accept="", **arguments):
    return parse_query({"from": arguments.pop("from_", ""), **arguments}, accept, IDS, NOW_NS)


def test_query_without_arguments_is_first_hundred():
    query = parse()

    assert query.position == LogPosition(PositionKind.EARLIEST)
    assert query.forward
    assert query.limit == 100
    assert not query.filters
    assert not query.lines


def test_query_backwards_begins_with_latest():
    assert parse(direction="back").position == LogPosition(PositionKind.LATEST)


def test_lines_are_asked_for_by_header_or_argument():
    assert parse(accept="text/html, application/x-ndjson").lines
    assert parse(format="ndjson").lines


def test_list_of_deferred_messages_goes_on_behind_due_time_and_sequence():
    query = parse(state="deferred", channel="c", from_="1700.12")

    assert query.state is MessageState.DEFERRED
    assert query.next_from == (1700, 12)
    assert query.by_due_time


def test_filters_count_together():
    query = parse(contains="x", json="n=5")

    assert query.filter.matches(b'{"n":5,"t":"x"}')
    assert not query.filter.matches(b'{"n":5}')


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"limit": "0"}, "INVALID_ARG_LIMIT: limit is a number from 1 to 10000, not '0'"),
        ({"limit": "1000000000"}, "INVALID_ARG_LIMIT"),
        ({"limit": "-1"}, "INVALID_ARG_LIMIT"),
        ({"limit": "1" * 99}, "INVALID_ARG_LIMIT"),
        ({"max_body": "x"}, "INVALID_ARG_MAX_BODY"),
        ({"direction": "up"}, "INVALID_ARG_DIRECTION"),
        ({"from_": "soon"}, "INVALID_ARG_FROM"),
        ({"state": "lost", "channel": "c"}, "INVALID_ARG_STATE"),
        ({"state": "waiting"}, "INVALID_ARG_STATE: only on a channel"),
        ({"state": "deferred", "channel": "c", "direction": "back"}, "INVALID_ARG_DIRECTION"),
        ({"state": "deferred", "channel": "c", "from_": "12"}, "INVALID_ARG_FROM"),
        ({"json": "a..b=1"}, "INVALID_ARG_JSON"),
    ],
)
def test_meaningless_query_is_refused_with_sentence(arguments, code):
    with pytest.raises(ApiError) as refusal:
        parse(**arguments)

    assert refusal.value.status == 400
    assert refusal.value.code.startswith(code)
    assert ": " in refusal.value.code
