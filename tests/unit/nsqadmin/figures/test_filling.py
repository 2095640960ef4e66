from nsqadmin.figures.filling import FAR_S, WINDOW_S, Filling


def test_a_disk_that_fills_up_is_full_when_its_pace_says_so():
    disk = Filling()

    assert disk.note(0, 1000) is None
    assert disk.note(30, 900) is None
    assert disk.note(100, 800) == 400


def test_a_disk_that_gets_emptier_is_never_full():
    disk = Filling()
    disk.note(0, 1000)

    assert disk.note(100, 1000) is None
    assert disk.note(200, 1500) is None


def test_only_the_last_minutes_count():
    disk = Filling()
    disk.note(0, 10_000)
    for minute in range(1, 40):
        found = disk.note(minute * 60, 1000 - minute)

    assert round(found) == round(961 * WINDOW_S / 15)


def test_what_is_not_known_is_forgotten():
    disk = Filling()
    disk.note(0, 1000)

    assert disk.note(100, -1) is None
    assert disk.note(200, 500) is None


def test_what_is_years_away_is_not_told():
    disk = Filling()
    disk.note(0, 1 << 40)

    assert disk.note(60, (1 << 40) - 1000) is None
    assert 0 < disk.note(120, (1 << 40) - (1 << 30)) < FAR_S
