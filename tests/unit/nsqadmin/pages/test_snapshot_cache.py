from nsqadmin.pages.snapshot_cache import MAX_PINNED, MAX_RECENT, PINNED_S, RECENT_S, SnapshotCache


def test_figures_of_one_round_share_number_and_those_of_the_next_get_another():
    kept, first, second = SnapshotCache(), object(), object()

    numbers = [kept.add("a", first, 0), kept.add("b", first, 1), kept.add("c", second, 2)]

    assert numbers[0] == numbers[1] != numbers[2]
    assert kept.pin(numbers[0], 3) == "a"


def test_figures_are_there_for_a_while_and_longer_when_they_are_held():
    kept = SnapshotCache()
    number = kept.add("figures", object(), 0)

    assert kept.pin(number, RECENT_S - 1) == "figures"
    assert kept.pin(number, RECENT_S - 1 + PINNED_S) == "figures"
    assert kept.pin(number, 3 * PINNED_S) is None


def test_unused_snapshots_expire_soon():
    kept = SnapshotCache()
    number = kept.add("figures", object(), 0)

    assert kept.pin(number, RECENT_S + 1) is None
    assert kept.pin("unknown", 0) is None


def test_no_more_than_a_few_are_kept_and_held_ones_last_longest():
    kept = SnapshotCache()
    held = kept.add(["held"], object(), 0)
    kept.pin(held, 0)
    numbers = [kept.add([number], object(), number) for number in range(1, 10)]

    assert kept.pin(held, 10) == ["held"]
    assert len(kept._entries) == MAX_RECENT + 1
    for number in [kept.add([number], object(), 11) for number in range(10 * MAX_PINNED)]:
        kept.pin(number, 11)
    assert len(kept._entries) <= MAX_PINNED + MAX_RECENT
    assert kept.pin(numbers[0], 12) is None
