"""The deltas that a worker sends to the tally."""

import json

from load.book import Book
from load.marks import Stamp


def test_delta_has_new_events_and_number():
    book = Book("w1")
    book.acked("load", "p1", [0, 1, 2])
    first, second = book.delta(), book.delta(last=True)

    assert (first["number"], first["acked"], first["last"]) == (1, {"load p1": [[0, 3]]}, False)
    assert (second["number"], second["acked"], second["last"]) == (2, {}, True)


def test_delta_is_as_small_as_its_numbers_are_in_order_and_goes_through_json():
    book = Book("w1")
    for number in range(10_000):
        book.received("load c", "127.0.0.1:4150", Stamp("p1", number, 0), 1)
        book.latency("delivery").record(1.0)

    text = json.dumps(book.delta())

    assert len(text) < 500
    assert json.loads(text)["received"] == [["load c", "127.0.0.1:4150", False, "p1", [[0, 10_000]]]]
