"""The frames of one connection, what is acknowledged of them, and who waits for that."""

import pytest

from nsqd.replication.fields import BadFrame
from nsqd.replication.frames import Ack, Ping, Sync
from nsqd.replication.framing import FrameReader, encode
from nsqd.replication.sender import PendingAck, Sender

_S = 1_000_000_000
PING = len(encode(Ping()))


@pytest.fixture
def sender():
    return Sender(0, strict=False)


def wait(sender):
    results = []
    pending = PendingAck([(sender, sender.sent)], 1, refuse=False)
    pending.add(results.append)
    sender.add_waiter(pending)
    return results


def frames(sender, now_ns=0):
    return list(FrameReader().feed(b"".join(sender.flush(now_ns))))


def test_flush_returns_everything_once_and_in_order(sender):
    sender.put(Ping())
    sender.put_pieces(encode(Ping())[:2], [encode(Ping())[2:]], PING - 2)

    assert frames(sender, 7) == [Ping(), Ping()]
    assert frames(sender) == []
    assert sender.sent == 2 * PING
    assert sender.sent_ns == 7


def test_sync_is_requested_behind_everything_that_was_sent(sender):
    sender.request_sync()
    sender.put(Ping())

    assert frames(sender) == [Ping(), Sync()]


def test_strict_waiter_requests_sync():
    sender = Sender(0, strict=True)
    sender.put(Ping())
    results = wait(sender)
    assert frames(sender) == [Ping(), Sync()]

    sender.acknowledged(Ack(sender.sent, 0))
    sender.notify()
    assert results == []
    assert sender.reached < sender.sent
    sender.acknowledged(Ack(sender.sent, sender.sent))
    sender.notify()

    assert results == [""]


@pytest.mark.parametrize("ack", [Ack(PING + 1, 0), Ack(0, 1)])
def test_acknowledgement_of_bytes_that_were_not_sent_is_bad_frame(sender, ack):
    sender.put(Ping())

    with pytest.raises(BadFrame, match="not sent"):
        sender.acknowledged(ack)


def test_lag_is_what_is_not_acknowledged(sender):
    sender.put(Ping())
    sender.flush(3 * _S)
    sender.put(Ping())
    sender.flush(4 * _S)
    assert (sender.lag_bytes, sender.lag_ns(10 * _S)) == (2 * PING, 7 * _S)

    sender.acknowledged(Ack(PING, 0))

    assert (sender.lag_bytes, sender.lag_ns(10 * _S)) == (PING, 6 * _S)


def test_stalled_replica_is_not_waited_for_until_it_has_caught_up(sender):
    sender.put(Ping())
    results = wait(sender)
    sender.flush(0)

    sender.check_timeout(2 * _S, 2 * _S)
    assert not sender.stalled
    sender.check_timeout(2 * _S + 1, 2 * _S)
    assert sender.stalled
    assert results == [""]
    sender.put(Ping())
    sender.flush(3 * _S)
    sender.check_timeout(3 * _S, 2 * _S)
    sender.acknowledged(Ack(PING, 0))
    assert sender.stalled
    sender.acknowledged(Ack(2 * PING, 0))

    assert not sender.stalled
