from contextlib import suppress

import pytest

from nsqadmin.stats.filters import FilterError, parse_filter

ROWS = [
    {"names": ["payments", "billing"], "state": ["stuck", "no consumers"], "depth": 2000, "age": 300.0},
    {"names": ["orders", "audit"], "state": [], "depth": 5, "age": None},
    {"names": ["paid", "mail"], "state": ["paused"], "depth": 0, "age": 3.0},
]
COLUMNS = {key: lambda row, key=key: row[key] for key in ("state", "depth", "age")}


def found(text):
    wanted = parse_filter(text, COLUMNS, lambda row: row["names"])
    return [row["names"][0] for row in ROWS if wanted.matches(row)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["payments", "orders", "paid"]),
        ("PAY", ["payments"]),
        ("pa", ["payments", "paid"]),
        ("pay*", ["payments"]),
        ("*s", ["payments", "orders"]),
        ("audit", ["orders"]),
        ("state:stuck", ["payments"]),
        ("state:no-consumers", ["payments"]),
        ("-state:stuck", ["orders", "paid"]),
        ("depth:>4 depth:<1k", ["orders"]),
        ("depth:>=2k", ["payments"]),
        ("depth:0", ["paid"]),
        ("age:>1min", ["payments"]),
        ("state:stuck depth:>1000 pay*", ["payments"]),
        ("-pa", ["orders"]),
    ],
)
def test_filter_requires_all_words(text, names):
    assert found(text) == names


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("depht:>3", "There is no column depht. There are age, depth, state."),
        ("depth:>many", ">many is no figure to compare with."),
        ("depth:", "What is depth: to be?"),
        ("depth:>3x", "x is no unit."),
        ("a " * 30, "at most 20 words"),
    ],
)
def test_invalid_filter_is_reported(text, sentence):
    with pytest.raises(FilterError) as problem:
        found(text)

    assert sentence in str(problem.value)


@pytest.mark.parametrize("text", ["depth:many", "(", "[a", "::", "-", "a:b:c*"])
def test_odd_words_find_nothing_or_are_refused_and_never_fail(text):
    with suppress(FilterError):
        found(text)
