import pytest

from nsqadmin.history.ring import (
    DAY,
    FILE_SIZE,
    HOUR,
    SLOTS,
    TOTALS,
    HistoryEvent,
    HistoryFile,
    HistoryFileError,
)
from nsqadmin.stats.points import Point

ORDERS = ("topic", "orders")
BILLING = ("channel", "orders", "billing")
# The beginning of an hour, and therefore of a minute.
NOON = 1_800_000_000 - 1_800_000_000 % 3600


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "history")


def depths(file, name, ring=HOUR, now_s=NOON):
    return [(at_s - NOON, point.depth) for at_s, point in file.read(name, ring, now_s)]


def test_rows_are_read_with_their_time_after_restart(path):
    with HistoryFile(path) as file:
        file.allocate([TOTALS, BILLING], NOON)
        for step in range(3):
            assert file.write(NOON + 5 * step, {TOTALS: Point(step), BILLING: Point(10 * step)})

    with HistoryFile(path) as file:
        assert depths(file, BILLING, now_s=NOON + 20) == [(0, 0), (5, 10), (10, 20)]
        assert depths(file, TOTALS, now_s=NOON + 20) == [(0, 0), (5, 1), (10, 2)]
        assert depths(file, ORDERS) == []
        assert not file.was_damaged


def test_clock_set_back_writes_no_row_until_it_has_caught_up():
    with HistoryFile() as file:
        file.allocate([TOTALS], NOON)

        assert file.write(NOON + 100, {TOTALS: Point(1)})
        assert not file.write(NOON + 104, {TOTALS: Point(2)})
        assert not file.write(NOON + 50, {TOTALS: Point(3)})
        assert file.write(NOON + 105, {TOTALS: Point(4)})
        # A clock that was set back by more than an hour is followed immediately.
        assert file.write(NOON - 86_400, {TOTALS: Point(5)})


def test_unwritten_rows_are_gaps_and_old_rows_are_gone():
    with HistoryFile() as file:
        file.allocate([TOTALS], NOON)
        file.write(NOON, {TOTALS: Point(1)})
        file.write(NOON + 60, {TOTALS: Point(2)})

        assert depths(file, TOTALS, now_s=NOON + 60) == [(0, 1), (60, 2)]
        later = NOON + HOUR.rows * HOUR.every_s
        assert depths(file, TOTALS, now_s=later) == [(60, 2)]


def test_minute_is_most_that_waited_and_mean_of_rates():
    with HistoryFile() as file:
        file.allocate([TOTALS], NOON)
        for step in range(13):
            file.write(NOON + 5 * step, {TOTALS: Point(step, published=float(step))})

        ((at_s, point),) = file.read(TOTALS, DAY, NOON + 120)

    assert (at_s, point.depth) == (NOON, 11)
    assert point.published == pytest.approx(5.5, rel=0.001)


@pytest.mark.parametrize("given_s", [30, 60])
def test_reused_slot_shows_no_rows_of_former_name(given_s):
    with HistoryFile() as file:
        file.allocate([BILLING], NOON)
        for at_s in range(NOON, NOON + 60, 5):
            file.write(at_s, {BILLING: Point(7)})
        file.release(BILLING)

        # While the clock catches up, and behind the last row.
        file.allocate([ORDERS], NOON + given_s)
        file.write(NOON + 60, {ORDERS: Point(8)})

        assert depths(file, ORDERS, now_s=NOON + 60) == [(60, 8)]
        assert depths(file, BILLING) == []


def test_file_has_fixed_size_and_number_of_slots(path, tmp_path):
    names = [("topic", f"t{number}") for number in range(SLOTS + 100)]
    with HistoryFile(path) as file:
        file.allocate(names, NOON)
        file.write(NOON, {name: Point(1) for name in names})

        assert len(file.names) == SLOTS
        assert depths(file, names[SLOTS - 1]) == [(0, 1)]
    assert (tmp_path / "history").stat().st_size == FILE_SIZE


def test_events_are_kept_and_oldest_goes():
    with HistoryFile() as file:
        for number in range(1030):
            file.note(HistoryEvent(NOON + number, "paused", f"number {number}", ORDERS))

        found = file.events(NOON)
        assert (len(found), found[0].text, found[-1].text) == (1024, "number 6", "number 1029")
        assert (found[0].kind, found[0].name) == ("paused", ORDERS)
        assert [event.text for event in file.events(NOON + 1029)] == ["number 1029"]


def test_file_of_something_else_is_kept_aside(path, tmp_path):
    (tmp_path / "history").write_bytes(b"precious")

    with HistoryFile(path) as file:
        assert file.was_damaged
        assert file.events(0) == []
    assert (tmp_path / "history.unreadable").read_bytes() == b"precious"


def test_file_is_locked_against_second_writer(path):
    with HistoryFile(path), pytest.raises(HistoryFileError, match="in use by another nsqadmin"):
        HistoryFile(path)


def test_file_that_cannot_be_opened_is_said_in_sentence(tmp_path):
    with pytest.raises(HistoryFileError, match="no such file or directory"):
        HistoryFile(str(tmp_path / "none" / "history"))


# -- the clock is set


A_DAY = 86_400


def test_history_begins_anew_when_clock_is_set_back_by_a_day(path):
    with HistoryFile(path) as file:
        file.allocate([ORDERS, BILLING], NOON + A_DAY)
        file.write(NOON + A_DAY, {ORDERS: Point(1), BILLING: Point(1)})
        file.release(BILLING)
        file.allocate([TOTALS], NOON)
        for step in range(25):
            assert file.write(NOON + 5 * step, {ORDERS: Point(10 + step), TOTALS: Point(step)})

        assert depths(file, ORDERS, now_s=NOON + 120) == [(5 * step, 10 + step) for step in range(25)]
        assert [at_s - NOON for at_s, _ in file.read(ORDERS, DAY, NOON + 120)] == [0, 60]

    with HistoryFile(path) as file:
        assert depths(file, ORDERS, now_s=NOON + 120)[-1] == (120, 34)
        assert depths(file, TOTALS, now_s=NOON + A_DAY) == []
        assert file.write(NOON + 125, {ORDERS: Point(35)})
        assert depths(file, ORDERS, now_s=NOON + 125)[-1] == (125, 35)


def test_events_of_a_time_to_come_are_not_shown():
    with HistoryFile() as file:
        for at_s in (NOON, NOON + A_DAY):
            file.note(HistoryEvent(at_s, "paused", "", ORDERS))

        assert [event.at_s for event in file.events(NOON - 3600, NOON)] == [NOON]


def test_event_with_half_of_surrogate_pair_is_kept(path):
    with HistoryFile(path) as file:
        file.note(HistoryEvent(float(NOON), "change", "by J\ud800rgen", ORDERS))

        assert [event.text for event in file.events(0)] == ["by J?rgen"]
