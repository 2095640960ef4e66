"""The command line tools as processes, which run to their end or are killed."""

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Self

import pytest

from nsqclient import Config, Consumer
from tests.support import beside, nursery
from tests.support.processes import GO_BIN, Daemon
from tests.support.waiting import eventually, wait_until

SOON_BACK: Final = [] if beside.OURS else ["-consumer-opt=msg_timeout,1s"]
"""The original's nsqd waits for that long when a consumer is gone, ours for nothing."""

PROJECT: Final = Path(__file__).parents[2]

GO_TOOLS: Final = "NSQ_GO_TOOLS"
"""The environment variable with the folder of the original's tools."""


def command(tool: str) -> list[str]:
    """Return how a tool is started: ours, unless the original's is under test."""
    if not beside.OURS:
        found = original(tool)
        if found is None:
            pytest.skip(f"no {tool} of the original")
        return [found]
    return [sys.executable, "-W", "error", "-m", f"nsqtools.{tool}"]


def environment() -> dict[str, str]:
    # Reading the system's certificates takes long, and no test trusts them.
    return {"SSL_CERT_FILE": os.devnull, **os.environ, "PYTHONPATH": str(PROJECT)}


def original(tool: str) -> str | None:
    """Return the path of the original's tool, or None if it is not installed."""
    if folder := os.environ.get(GO_TOOLS):
        found = shutil.which(tool, path=folder)
        assert found, f"{GO_TOOLS} is {folder}, where there is no {tool}"
        return found
    found = shutil.which(tool, path=os.environ.get(GO_BIN) or os.environ.get("PATH"))
    # Our tool may be on PATH under the same name, but it is a script and the original is not.
    if found and Path(found).read_bytes()[:2] != b"#!":
        return found
    return None


def run_tool(
    tool: str | list[str], *flags: str, stdin: bytes = b"", seconds: float = 30, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a tool to its end."""
    started = [*(command(tool) if isinstance(tool, str) else tool), *flags]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process, theirs = start_tool(started, out.fileno(), err.fileno(), cwd)
        # In a thread, because the whole input could be more than the pipe holds.
        feeding = threading.Thread(target=_feed, args=(theirs, stdin))
        feeding.start()
        try:
            code = process.wait(seconds)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(20)
            feeding.join()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(started, code, out.read(), err.read())


def _feed(theirs: IO[bytes], stdin: bytes) -> None:
    with suppress(BrokenPipeError), theirs:
        theirs.write(stdin)


def start_tool(
    started: list[str], out: int, err: int, cwd: Path | None = None
) -> tuple[nursery.Process, IO[bytes]]:
    """Return a process and the writing end of its stdin."""
    reads, writes = os.pipe()
    try:
        process = nursery.start_tool(
            started, environment(), cwd or Path.cwd(), {0: reads, 1: out, 2: err}
        ) or subprocess.Popen(started, stdin=reads, stdout=out, stderr=err, cwd=cwd, env=environment())
    finally:
        os.close(reads)
    return process, os.fdopen(writes, "wb")


class Tool:
    """A running tool; its stdout and stderr are files, so that nothing is lost when it is killed."""

    def __init__(self, folder: Path, tool: str | list[str], *flags: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        started = command(tool) if isinstance(tool, str) else tool
        number = len(list(folder.glob("*.err")))
        self.out, self.err = folder / f"{number}.out", folder / f"{number}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process, self.stdin = start_tool([*started, *flags], out.fileno(), err.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        self.stdin.close()

    def printed(self) -> bytes:
        return self.out.read_bytes()

    def said(self) -> str:
        return self.err.read_text(errors="replace")

    def until_said(self, words: str, seconds: float = 20) -> None:
        """Wait for words on stderr."""
        wait_until(lambda: words in self.said() or self._ended(words), f"it says {words!r}", seconds)

    def _ended(self, words: str) -> bool:
        if self.process.poll() is None:
            return False
        if words in self.said():
            return True
        raise AssertionError(f"ended with {self.process.returncode} before {words!r}:\n{self.said()}")

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 40) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def kill(self) -> None:
        """Send SIGKILL, so that it cannot save anything."""
        self.process.kill()
        self.process.wait(20)


def ends_though_nobody_reads(tool: str, *flags: str) -> int:
    """Return how a tool ends that got SIGTERM when the pipe to which it writes was full."""
    reader, writer = os.pipe()
    capacity = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen(
        [*command(tool), *flags], stdout=writer, stderr=subprocess.DEVNULL, env=environment()
    ) as process:
        os.close(writer)
        held = [0]

        def is_stuck() -> bool:
            held.append(int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, bytes(4)), sys.byteorder))
            return held[-2] == held[-1] > capacity - 256

        try:
            wait_until(is_stuck, "it has filled the pipe")
            process.terminate()
            return process.wait(20)
        finally:
            process.kill()
            os.close(reader)


def publish(nsqd: Daemon, topic: str, bodies: Iterable[bytes], channel: str = "") -> None:
    """Publish messages; *channel* is created first, so that it gets all of them."""
    if channel:
        nsqd.create(topic, channel)
    listed = list(bodies)
    pieces = b"".join(len(body).to_bytes(4) + body for body in listed)
    nsqd.post(f"/mpub?topic={topic}&binary=true", len(listed).to_bytes(4) + pieces)


def unfinished(nsqd: Daemon, topic: str, channel: str) -> int:
    """Return how many messages of a channel are not finished.

    Messages that wait at the topic count too, because a new topic first asks nsqlookupd for its channels.
    """
    [topic_stats] = nsqd.get(f"/stats?format=json&topic={topic}")["topics"]
    stats = next(one for one in topic_stats["channels"] if one["channel_name"] == channel)
    waiting = topic_stats["depth"] + stats["depth"]
    return int(waiting + stats["in_flight_count"] + stats["deferred_count"])


def read_all(nsqd: Daemon, topic: str, channel: str) -> list[bytes]:
    """Return all messages of a channel's backlog; none may be in flight at another consumer."""
    bodies: list[bytes] = []

    async def read() -> None:
        config = Config(max_in_flight=1000)
        async with Consumer(
            topic,
            channel,
            lambda delivery: bodies.append(delivery.body),
            nsqd_addresses=[nsqd.tcp_address],
            config=config,
        ):
            await eventually(lambda: unfinished(nsqd, topic, channel) == 0, f"{topic}/{channel} is empty", 20)

    asyncio.run(read())
    return bodies
