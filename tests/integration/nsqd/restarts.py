"""Ways to restart an nsqd, also from a copy of its files, and its state afterwards."""

import shutil
from pathlib import Path

from tests.support.processes import Daemon


def crash(nsqd: Daemon) -> None:
    nsqd.kill()
    nsqd.start()


def stop(nsqd: Daemon) -> None:
    assert nsqd.stop() == 0
    nsqd.start()


def copied(nsqd: Daemon) -> None:
    """Copy the folder of an nsqd that does not run, for `restored`."""
    shutil.copytree(nsqd.folder, f"{nsqd.folder}.copy")


def restored(nsqd: Daemon, copy: Path | None = None) -> Daemon:
    """The nsqd with the files of its copy. The reservation stays one file: another means a copied path."""
    if nsqd.is_running():
        nsqd.kill()
    for path in nsqd.folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "reservation":
            path.unlink()
    shutil.copytree(copy or f"{nsqd.folder}.copy", nsqd.folder, dirs_exist_ok=True)
    return nsqd


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
