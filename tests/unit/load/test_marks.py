"""The mark that each message of the load carries."""

from load.marks import MARK_BYTES, Marker, Stamp, publisher_id


def test_body_tells_publisher_number_and_time_again():
    marker = Marker(b"run-0001")
    publisher = publisher_id(b"abcde", 7)

    body = marker.body(publisher, 12, 1_790_000_000_000_000_000, 200)

    assert len(body) == 200
    assert marker.read(body) == Stamp(publisher.hex(), 12, 1_790_000_000_000_000_000)


def test_body_is_never_shorter_than_its_mark():
    assert len(Marker(b"run-0001").body(publisher_id(b"abcde", 1), 0, 0, 1)) == MARK_BYTES


def test_messages_of_other_runs_are_ignored():
    body = Marker(b"run-0001").body(publisher_id(b"abcde", 1), 0, 0, 100)

    assert Marker(b"run-0002").read(body) is None
    assert Marker(b"run-0002").read(b"hello") is None


def test_publishers_of_two_workers_are_two():
    ids = {publisher_id(worker, number) for worker in (b"abcde", b"abcdf") for number in range(1, 100)}

    assert len(ids) == 198
