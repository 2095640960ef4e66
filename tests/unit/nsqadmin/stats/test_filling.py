import pytest

from nsqadmin.stats.filling import FAR_S, WINDOW_S, Filling


@pytest.mark.parametrize(
    "notes",
    [
        [(0, 1000, None), (599, 900, None), (600, 800, 2400)],
        # A disk that gets emptier is never full.
        [(0, 1000, None), (600, 1000, None), (700, 1500, None)],
        # It is not known how much is free.
        [(0, 1000, None), (300, -1, None), (700, 500, None)],
    ],
    ids=["fills up", "gets emptier", "unknown"],
)
def test_disk_is_full_when_its_pace_says_so(notes):
    disk = Filling()

    assert [disk.note(at_s, free) for at_s, free, _ in notes] == [full_s for *_, full_s in notes]


def test_filling_uses_last_minutes():
    disk = Filling()
    disk.note(0, 10_000)
    for minute in range(1, 40):
        found = disk.note(minute * 60, 1000 - minute)

    assert round(found) == round(961 * WINDOW_S / 15)


def test_filling_has_no_forecast_for_years():
    disk = Filling()
    disk.note(0, 1 << 40)

    assert disk.note(600, (1 << 40) - 1000) is None
    assert 0 < disk.note(660, (1 << 40) - (1 << 30)) < FAR_S
