"""What the load tests call a fault; the fast part of them, which needs no cluster."""

import pytest

from tests.load.journal import Comparison, Journal
from tests.load.smoke import Figures, Times


@pytest.fixture
def note(tmp_path):
    """Write ids the way one user does."""

    def write(kind, *ids, writer="1"):
        journal = Journal(tmp_path, kind, writer)
        journal.note(ids)
        journal.close()

    return write


@pytest.fixture
def compare(tmp_path):
    return lambda: Comparison.of(tmp_path)


def test_all_is_well_when_each_acknowledged_message_came_once(note, compare):
    note("acked", b"a", b"b")
    note("received", b"b")
    note("received", b"a", writer="2")

    assert compare().fault(duplicates_allowed=False) is None


def test_an_acknowledged_message_that_never_came_is_named(note, compare):
    note("acked", b"a", b"b", b"c")
    note("received", b"a")

    sentence = compare().fault(duplicates_allowed=True)

    assert sentence == "2 messages were acknowledged and not received, for example b"


def test_a_message_without_an_answer_may_come_or_not(note, compare):
    note("unsure", b"a", b"b")
    note("received", b"a")

    assert compare().fault(duplicates_allowed=False) is None


def test_a_message_nobody_sent_is_named(note, compare):
    note("acked", b"a")
    note("received", b"a", b"x")

    assert (
        compare().fault(duplicates_allowed=True) == "1 messages were received and never sent, for example x"
    )


def test_a_message_that_came_twice_is_a_fault_only_where_nothing_had_failed(note, compare):
    note("acked", b"a")
    note("received", b"a")
    note("received", b"a", writer="2")

    assert compare().duplicates == 1
    assert compare().fault(duplicates_allowed=True) is None
    assert "1 messages were delivered more than once" in compare().fault(duplicates_allowed=False)


@pytest.fixture
def figures(note, compare):
    """Figures of a run in which all went well, but for the errors given."""

    def of(errors, requests=("PUB", "MPUB", "DELIVERY")):
        note("acked", b"a")
        note("received", b"a")
        rows = [{"method": kind, "num_requests": 2, "num_failures": 1} for kind in requests]
        return Figures(1.0, rows, errors, compare())

    return of


def test_a_lost_connection_is_an_error_unless_a_nsqd_was_killed(figures):
    errors = {"ConnectionRefusedError(111, 'Connection refused')": 3}

    assert "3 requests failed, the first with: ConnectionRefusedError" in figures(errors).fault(killed=False)
    assert figures(errors).fault(killed=True) is None


def test_an_error_frame_is_an_error_even_when_a_nsqd_was_killed(figures):
    errors = {"ConnectionResetError(104, 'reset')": 3, "ProtocolError('E_PUB_FAILED')": 1}

    sentence = figures(errors).fault(killed=True)

    assert sentence == "1 requests failed, the first with: ProtocolError('E_PUB_FAILED')"


def test_a_run_in_which_nothing_happened_shows_nothing(figures):
    assert figures({}, requests=("PUB",)).fault(killed=False) == (
        "no MPUB and no DELIVERY succeeded, so nothing was shown"
    )
    assert "nobody noticed" in figures({}).fault(killed=True)


def test_shares_of_a_histogram_are_read_from_its_buckets():
    times = Times({"1": 50, "2": 45, "30": 5})

    assert [times.share(part) for part in (0.5, 0.95, 0.99)] == [1, 2, 30]
