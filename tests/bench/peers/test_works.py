"""The loads: every batch is answered, at most a window is under way, and mixed bodies are mixed."""

import itertools

from bench.peers.speech import Session
from bench.peers.works import MIXED, bodies, stream


class Echo(Session):
    """Answers each message with one byte; a read returns *at_once* of them."""

    window = 3

    def __init__(self, at_once):
        super().__init__(self)
        self._at_once = at_once
        self.sent, self.waiting, self.most = [], 0, 0

    def one(self, body):
        return b"1" + body

    def sendall(self, data):
        self.sent.append(data)
        self.waiting += len(data)
        self.most = max(self.most, self.waiting)

    def recv(self, _count):
        count = min(self.waiting, self._at_once)
        self.waiting -= count
        return b"." * count

    def feed(self, data):
        self.in_order += len(data)
        return len(data)


def test_a_stream_ends_at_its_quota_when_all_of_it_is_answered():
    session = Echo(at_once=3)

    answered = stream({session: itertools.cycle([b"12345"])}, 5, 42, float("inf"))

    assert answered == session.in_order == 45
    assert session.waiting == 0
    assert session.most < (Echo.window + 1) * 5


def test_sessions_take_turns_and_all_are_waited_for():
    sessions = [Echo(at_once=2) for _ in range(3)]

    answered = stream({one: itertools.cycle([b"12345"]) for one in sessions}, 5, 60, float("inf"))

    assert answered == 60
    assert [len(one.sent) for one in sessions] == [4, 4, 4]
    assert [one.waiting for one in sessions] == [0, 0, 0]


def test_a_stream_whose_time_is_up_waits_for_what_is_under_way():
    session = Echo(at_once=1)

    assert stream({session: itertools.cycle([b"12345"])}, 5, 1000, float("-inf")) == 0
    assert not session.sent


def test_mixed_bodies_are_of_every_length_between_the_bounds():
    lengths = {len(body) for body in bodies(None, 5000, seed=1)}

    assert lengths == set(range(MIXED[0], MIXED[1] + 1))
    assert {len(body) for body in bodies(16, 3, seed=1)} == {16}
