"""A message that is sent late counts as late: its consumer measures from when the message was due."""

import socket
import threading
import time
from array import array
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import OK_FRAME, LoadError
from bench.paced import DUE_SIZE, Pacer, dues_of, percentile
from tests.bench.test_load import frame

HEAD, TAIL = b"PUB t\n\x00\x00\x00\x0a", b"xx"
LENGTH = len(HEAD) + DUE_SIZE + len(TAIL)
MS = 1_000_000


def paced(answers, total, start, give_up):
    """Run a pacer against a thread that answers message *n* with ``answers(n)``; return (waits, messages)."""
    near, far = socket.socketpair()
    sent, waits = [], []

    def serve():
        # The pacer may close the connection before the last answer.
        with suppress(BrokenPipeError, ConnectionResetError):
            while message := far.recv(LENGTH, socket.MSG_WAITALL):
                sent.append(message)
                far.sendall(answers(len(sent) - 1))

    server = threading.Thread(target=serve)
    server.start()
    try:
        Pacer([near], HEAD, TAIL, MS).run(start, total, give_up, waits.append)
    finally:
        near.close()
        server.join()
        far.close()
    return waits, sent


def test_every_message_says_when_it_was_due_though_it_is_sent_late():
    start = time.monotonic_ns() - 500 * MS  # all messages are due already

    waits, sent = paced(lambda _: OK_FRAME, 20, start, start + 60_000 * MS)

    assert sent == [HEAD + (start + n * MS).to_bytes(DUE_SIZE, "big") + TAIL for n in range(20)]
    assert len(waits) == 20
    assert all(wait >= 480 * MS for wait in waits)


def test_nothing_is_waited_for_after_the_moment_to_give_up():
    now = time.monotonic_ns()

    waits, sent = paced(lambda n: OK_FRAME if n < 3 else b"", 5, now - 500 * MS, now + 300 * MS)

    assert len(sent) == 5
    assert len(waits) == 3


def test_another_answer_than_ok_is_an_error():
    now = time.monotonic_ns()

    with pytest.raises(LoadError, match="expected OK"):
        paced(lambda _: b"\x00\x00\x00\x06\x00\x00\x00\x01NO", 5, now, now + 60_000 * MS)


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=30), st.integers(8, 40))
def test_a_consumer_finds_when_its_messages_were_due(dues, size):
    stream = b"".join(frame(n, due.to_bytes(8, "big").ljust(size, b"x")) for n, due in enumerate(dues))

    assert dues_of(bytearray(stream + b"rest"), len(stream), size) == array("Q", dues)


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 2), (100, 0.99, 99), (100, 0.999, 100), (1000, 0.999, 999)],
)
def test_a_percentile_is_the_smallest_that_so_many_do_not_exceed(count, share, expected):
    assert percentile(list(range(1, count + 1)), share) == expected
