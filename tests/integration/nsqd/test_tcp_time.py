"""The effects of time: message time-outs, TOUCH and its cap, heartbeats and silence.

The tests run in real time, so the waits are as short as the protocol allows: the flag may set a message
time-out that no client may ask for.
"""

import os
import signal
import time

import pytest

from tests.support import beside
from tests.support.nsqd_http import channel_stats
from tests.support.processes import Cluster
from tests.support.waiting import wait_until
from tests.support.wire import NO_ID, fin, pub, req, touch

MSG_TIMEOUT_S = 0.3
# For tests that send TOUCH in time even if they are not run for a second.
PATIENT_S = 1.5
MAX_MSG_TIMEOUT_S = 3.0


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """An nsqd that waits only 300 ms for an answer."""
    cluster = Cluster(tmp_path_factory.mktemp("hasty") / "cluster")
    yield cluster.nsqd("--msg-timeout=300ms", "--max-msg-timeout=3s")
    cluster.close()


@pytest.fixture
def consumer(hasty, connect, topic):
    wire = connect(hasty)
    wire.subscribe(topic, ready=10)
    return wire


@pytest.fixture
def patient(hasty, connect, topic):
    """A consumer that asked for more time."""
    wire = connect(hasty)
    wire.identify(msg_timeout=int(PATIENT_S * 1000))
    wire.subscribe(topic, ready=10)
    return wire


@pytest.fixture
def producer(hasty, connect):
    return connect(hasty)


def took(began, seconds):
    """Whether at least *seconds* have passed: on a busy machine events may be late, but never early.

    An event that is much too late runs into the time-out of the socket.
    """
    return time.monotonic() - began >= seconds - 0.1


def test_message_not_answered_in_time_is_delivered_again(hasty, consumer, producer, topic):
    producer.publish(topic, b"m")
    first = consumer.message()
    began = time.monotonic()
    second = consumer.message()
    assert took(began, MSG_TIMEOUT_S)
    assert (second.id, second.timestamp_ns, second.attempts) == (first.id, first.timestamp_ns, 2)
    channel = channel_stats(hasty, topic)
    assert (channel["timeout_count"], channel["requeue_count"], channel["in_flight_count"]) == (1, 0, 1)
    assert channel["clients"][0]["in_flight_count"] == 1
    consumer.send(fin(second))
    consumer.quiet()


def test_answer_after_time_out_is_too_late(connect, hasty, consumer, producer, topic):
    consumer.send(b"RDY 1\n")
    producer.publish(topic, b"m")
    message = consumer.message()
    consumer.send(b"RDY 0\n")
    wait_until(lambda: channel_stats(hasty, topic)["depth"] == 1, "the message timed out")
    for command in (fin(message), req(message, 0), touch(message)):
        consumer.send(command)
        assert consumer.error().endswith(b" failed ID not in flight")


def test_touch_extends_time_out_up_to_max_msg_timeout_from_delivery(hasty, patient, producer, topic):
    producer.publish(topic, b"m")
    message = patient.message()
    began = time.monotonic()
    while not patient.has_more(seconds=0.1):
        patient.send(touch(message))
    assert took(began, MAX_MSG_TIMEOUT_S)
    # The last TOUCH may have been sent before the time-out was received.
    kind, data = patient.frame()
    if b"E_TOUCH_FAILED" in data:
        kind, data = patient.frame()
    assert kind == 2
    assert channel_stats(hasty, topic)["timeout_count"] == 1


def test_client_may_ask_for_its_own_message_time_out(connect, nsqd, topic, stats):
    wire = connect()
    assert wire.identify(msg_timeout=1000)["msg_timeout"] == 1000
    wire.subscribe(topic, ready=1)
    connect().publish(topic, b"m")
    wire.message()
    began = time.monotonic()
    assert wire.message().attempts == 2
    assert took(began, 1.0)


@pytest.mark.slow
def test_heartbeats_come_whatever_else_is_said_and_silence_ends_connection(connect, topic):
    talker, mute, deaf = connect(), connect(), connect()
    for wire in (talker, mute):
        wire.identify(heartbeat_interval=1000)
    if beside.OURS:  # with the original only the first IDENTIFY counts
        deaf.identify(heartbeat_interval=1000)
    deaf.identify(heartbeat_interval=-1)
    began = time.monotonic()
    heartbeats = 0
    while heartbeats < 3:
        talker.send(b"NOP\n")
        if talker.has_more(seconds=0.1):
            assert talker.response() == b"_heartbeat_"
            heartbeats += 1
    assert took(began, 3.0)
    # After two intervals of silence the connection is closed, without an error frame.
    assert mute.response() == b"_heartbeat_"
    ending = mute.rest()
    assert ending in {b"", b"\0\0\0\x0f\0\0\0\0_heartbeat_"}
    # Without heartbeats there is no deadline either.
    deaf.publish(topic, b"still here")
    assert not deaf.has_more()


@pytest.mark.slow
def test_command_or_half_of_one_is_sign_of_life(connect, topic):
    wire = connect()
    wire.identify(heartbeat_interval=1000)
    wire.subscribe(topic)
    began = time.monotonic()
    for piece in (b"FIN %b\n" % NO_ID, b"NO", b"P\n"):
        assert wire.response() == b"_heartbeat_"
        wire.send(piece)
        if piece.startswith(b"FIN"):
            assert wire.error().startswith(b"E_FIN_FAILED")
    assert took(began, 3.0)
    wire.quiet()


@pytest.fixture
def stopped(hasty):
    """Stop nsqd's process with a signal until the test lets it continue."""

    def go_on():
        os.kill(hasty.pid, signal.SIGCONT)

    os.kill(hasty.pid, signal.SIGSTOP)
    yield go_on
    go_on()


def test_message_finished_while_nsqd_was_suspended_does_not_time_out(consumer, hasty, topic):
    consumer.send(pub(topic, b"m") + b"NOP\n")
    assert consumer.response() == b"OK"
    message = consumer.message()
    os.kill(hasty.pid, signal.SIGSTOP)
    try:
        time.sleep(0.1)
        consumer.send(fin(message))
        time.sleep(1.2)
    finally:
        os.kill(hasty.pid, signal.SIGCONT)

    consumer.quiet()
    (found,) = hasty.get(f"/stats?format=json&topic={topic}")["topics"]
    (channel,) = found["channels"]
    assert (channel["timeout_count"], channel["in_flight_count"], channel["depth"]) == (0, 0, 0)


@pytest.fixture
def beating(connect, hasty):
    """A client that nsqd closes after two seconds of silence."""
    wire = connect(hasty)
    wire.identify(heartbeat_interval=1000)
    return wire


@pytest.mark.slow
def test_bytes_sent_while_nsqd_was_suspended_are_no_silence(beating, stopped, topic):
    beating.send(pub(topic, b"m"))
    time.sleep(2.5)
    stopped()

    assert [frame for frame in (beating.response() for _ in range(2)) if frame == b"OK"] == [b"OK"]
    # From here on the client answers heartbeats, and stays connected.
    for _ in range(2):
        beating.send(b"NOP\n")
        assert beating.response() == b"_heartbeat_"
