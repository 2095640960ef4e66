"""The tally on disk."""

from load.book import Book
from load.journal import TallyJournal, read_journal


def test_journal_is_read_as_it_was_written(tmp_path):
    journal = TallyJournal(tmp_path / "tally.jsonl", ["load c"])
    book = Book("w1")
    for number in range(5):
        book.acked("load", "p1", [number])
        journal.add(book.delta(last=number == 4))

    again = read_journal(journal.path)

    assert again.outcome() == journal.tally.outcome()
    assert (again.count("acked"), again.unreported) == (5, [])


def test_journal_has_bounded_size(tmp_path):
    journal = TallyJournal(tmp_path / "tally.jsonl", ["load c"], limit_bytes=5_000)
    book = Book("w1")
    for number in range(2_000):
        book.acked("load", "p1", [number])
        journal.add(book.delta())

    assert journal.path.stat().st_size < 8_000
    assert read_journal(journal.path).count("acked") == 2_000


def test_torn_last_line_is_ignored(tmp_path):
    journal = TallyJournal(tmp_path / "tally.jsonl", ["load c"])
    book = Book("w1")
    book.acked("load", "p1", [1])
    journal.add(book.delta())
    with journal.path.open("ab") as file:
        file.write(b'{"worker": "w1", "num')

    assert read_journal(journal.path).count("acked") == 1
