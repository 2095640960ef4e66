import pytest

from nsqadmin.pages.paging import window

ROWS = list(range(1, 121))


def test_long_list_is_shown_in_parts():
    part = window(ROWS, "2")

    assert (part.items[0], part.items[-1]) == (51, 100)
    assert (part.first, part.last, part.total, part.pages) == (51, 100, 120, 3)


@pytest.mark.parametrize(
    ("wanted", "number"),
    [("", 1), ("0", 1), ("-1", 1), ("x", 1), ("3", 3), ("4", 3), ("9" * 30, 1), ("²", 1)],
)
def test_invalid_page_numbers_lead_to_existing_page(wanted, number):
    assert window(ROWS, wanted).number == number


def test_empty_list_has_one_empty_page():
    part = window([], "7")

    assert (part.items, part.number, part.pages, part.first, part.last) == ([], 1, 1, 0, 0)
