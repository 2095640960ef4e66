from nsqadmin.stats.filling import FAR_S, WINDOW_S, Filling


def test_disk_that_fills_up_is_full_when_its_pace_says_so():
    disk = Filling()

    assert disk.note(0, 1000) is None
    assert disk.note(599, 900) is None
    assert disk.note(600, 800) == 2400


def test_disk_that_gets_emptier_is_never_full():
    disk = Filling()
    disk.note(0, 1000)

    assert disk.note(600, 1000) is None
    assert disk.note(700, 1500) is None


def test_filling_uses_last_minutes():
    disk = Filling()
    disk.note(0, 10_000)
    for minute in range(1, 40):
        found = disk.note(minute * 60, 1000 - minute)

    assert round(found) == round(961 * WINDOW_S / 15)


def test_unknown_names_are_forgotten():
    disk = Filling()
    disk.note(0, 1000)

    assert disk.note(300, -1) is None
    assert disk.note(700, 500) is None


def test_filling_has_no_forecast_for_years():
    disk = Filling()
    disk.note(0, 1 << 40)

    assert disk.note(600, (1 << 40) - 1000) is None
    assert 0 < disk.note(660, (1 << 40) - (1 << 30)) < FAR_S
