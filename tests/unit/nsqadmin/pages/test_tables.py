from nsqadmin.pages.tables import Column, Table

COLUMNS = (
    Column("name", "Name", lambda row: row[0], "text"),
    Column("depth", "Depth", lambda row: row[1], keep=True),
    Column("rate", "Rate", lambda row: row[2], "rate"),
    Column("extra", "Extra", lambda row: row[1] * 2, usual=False),
)
ROWS = [("b", 1, None), ("A", 2, 1.5), ("=c", 2, 0.25)]


def table(**query):
    return Table(COLUMNS, query, lambda row: [row[0]])


def names(rows):
    return [row[0] for row in rows]


def keys(table):
    return [column.key for column in table.columns]


def test_rows_are_sorted_by_column_asked_for_and_equal_ones_stay():
    assert names(table(sort="name").apply(ROWS)) == ["=c", "A", "b"]
    assert names(table(sort="depth", dir="desc").apply(ROWS)) == ["A", "=c", "b"]
    assert names(table(sort="nonsense").apply(ROWS)) == ["=c", "A", "b"]


def test_unknown_values_sort_last_in_both_directions():
    assert names(table(sort="rate").apply(ROWS)) == ["=c", "A", "b"]
    assert names(table(sort="rate", dir="desc").apply(ROWS)) == ["A", "=c", "b"]


def test_columns_are_usual_ones_named_ones_or_ticked_ones():
    assert keys(table()) == ["name", "depth", "rate"]
    assert keys(table(cols="extra,nonsense")) == ["name", "extra"]
    assert keys(table(**{"cols": "ticked", "col.rate": "1"})) == ["name", "rate"]


def test_filter_that_cannot_be_understood_finds_nothing_and_says_why():
    one = table(q="nope:1")

    assert one.apply(ROWS) == []
    assert one.problem == "There is no column nope. There are depth, extra, name, rate."


def test_lists_of_one_page_have_their_own_arguments():
    one = Table(COLUMNS, {"q": "x", "nodes-q": "b"}, lambda row: [row[0]], prefix="nodes-")

    assert names(one.apply(ROWS)) == ["b"]


def test_csv_has_columns_shown_and_no_formulas():
    one = table(sort="name", cols="rate")

    assert one.csv(one.apply(ROWS)) == "name,rate\r\n'=c,0.25\r\nA,1.5\r\nb,\r\n"
