"""Two ways to restart an nsqd, and its state afterwards."""

from tests.support.processes import Daemon


def crash(nsqd: Daemon) -> None:
    nsqd.kill()
    nsqd.start()


def stop(nsqd: Daemon) -> None:
    assert nsqd.stop() == 0
    nsqd.start()


def topics(nsqd):
    return {topic["topic_name"]: topic for topic in nsqd.get("/stats?format=json")["topics"] or ()}


def channel_of(nsqd, topic="t", channel="ch"):
    (found,) = [c for c in topics(nsqd)[topic]["channels"] if c["channel_name"] == channel]
    return found


def statistics(channel):
    return {key: channel[key] for key in ("depth", "in_flight_count", "deferred_count")}


def consume(connect, nsqd, count, topic="t", channel="ch"):
    """Subscribe, take *count* messages, and assert that there are no more."""
    wire = connect(nsqd)
    wire.subscribe(topic, channel, ready=count + 10)
    messages = wire.messages(count)
    wire.quiet()
    return wire, messages


def bodies(messages):
    return [message.body for message in messages]
