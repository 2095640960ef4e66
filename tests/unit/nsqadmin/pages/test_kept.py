from nsqadmin.pages.kept import HELD_S, MOST_HELD, MOST_RECENT, RECENT_S, KeptFigures


def test_figures_of_one_round_share_a_number_and_those_of_the_next_get_another():
    kept, first, second = KeptFigures(), object(), object()

    numbers = [kept.keep("a", first, 0), kept.keep("b", first, 1), kept.keep("c", second, 2)]

    assert numbers[0] == numbers[1] != numbers[2]
    assert kept.held(numbers[0], 3) == "a"


def test_figures_are_there_for_a_while_and_longer_when_they_are_held():
    kept = KeptFigures()
    number = kept.keep("figures", object(), 0)

    assert kept.held(number, RECENT_S - 1) == "figures"
    assert kept.held(number, RECENT_S - 1 + HELD_S) == "figures"
    assert kept.held(number, 3 * HELD_S) is None


def test_figures_that_nobody_holds_go_soon():
    kept = KeptFigures()
    number = kept.keep("figures", object(), 0)

    assert kept.held(number, RECENT_S + 1) is None
    assert kept.held("unknown", 0) is None


def test_no_more_than_a_few_are_kept_and_held_ones_last_longest():
    kept = KeptFigures()
    held = kept.keep(["held"], object(), 0)
    kept.held(held, 0)
    numbers = [kept.keep([number], object(), number) for number in range(1, 10)]

    assert kept.held(held, 10) == ["held"]
    assert len(kept._entries) == MOST_RECENT + 1
    for number in [kept.keep([number], object(), 11) for number in range(10 * MOST_HELD)]:
        kept.held(number, 11)
    assert len(kept._entries) <= MOST_HELD + MOST_RECENT
    assert kept.held(numbers[0], 12) is None
