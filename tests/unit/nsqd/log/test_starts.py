from nsqd.log.starts import Starts

FIRST = 1 << 60


def starts(*firsts, size=100):
    found = Starts(FIRST, 500)
    for number, first in enumerate(firsts):
        found.add(first, 500 + (number + 1) * size)
    return found


def spans(found, *seqs):
    return [(found.offset(found.place(seq)), found.offset(found.place(seq) + 1)) for seq in seqs]


def test_single_appends_have_own_starts():
    found = starts(FIRST, FIRST + 1, FIRST + 2)

    assert spans(found, FIRST, FIRST + 1, FIRST + 2) == [(500, 600), (600, 700), (700, 800)]
    assert (len(found), found.end, found.size) == (3, 800, 12)


def test_message_lies_in_last_append_at_or_before_it():
    found = starts(FIRST, FIRST + 1, FIRST + 7, FIRST + 7, FIRST + 20)

    assert spans(found, FIRST, FIRST + 1, FIRST + 6) == [(500, 600), (600, 700), (600, 700)]
    assert spans(found, FIRST + 7, FIRST + 19, FIRST + 20) == [(800, 900), (800, 900), (900, 1000)]
    assert found.size == 60


def test_message_outside_page_is_looked_for_at_its_ends():
    for found in (starts(FIRST, FIRST + 1), starts(FIRST + 3, FIRST + 5)):
        assert spans(found, FIRST - 9, FIRST + 99) == [(500, 600), (600, 700)]


def test_page_to_which_nothing_was_appended_ends_where_it_begins():
    found = starts()

    assert (len(found), found.offset(found.place(FIRST)), found.end) == (0, 500, 500)


def test_whether_each_append_has_one_message_is_known_by_where_page_ends():
    assert starts(FIRST, FIRST + 1, FIRST + 2).one_each(FIRST + 3)
    assert not starts(FIRST, FIRST + 1, FIRST + 2).one_each(FIRST + 9)
    assert not starts(FIRST, FIRST + 1, FIRST + 3).one_each(FIRST + 4)
    assert not starts(FIRST).one_each(FIRST + 200)


def test_page_is_cached_after_repeated_single_reads():
    found = starts(FIRST, FIRST + 1, FIRST + 2)
    found.reads = 6

    assert not found.worth_the_page(FIRST + 3)
    found.reads += 1
    assert found.worth_the_page(FIRST + 3)
