"""Measures what a topic, a connection and a heartbeat cost an nsqd."""

import socket
import tempfile
import time
from contextlib import ExitStack, suppress

from bench.fleet_checks.process import Process, ask, topic_name
from nsqclient.wire.commands import NOP, identify, rdy, sub
from nsqclient.wire.frames import HEARTBEAT


def one_nsqd(topics: int = 500, connections: int = 500, seconds: float = 12.0) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder, ExitStack() as stack:
        nsqd = Process("nsqd", f"--data-path={folder}")
        stack.callback(nsqd.stop)
        nsqd.wait()
        time.sleep(1)
        empty = nsqd.memory_mb()
        for number in range(topics):
            ask(nsqd.address("http"), f"/topic/create?topic={topic_name(number)}", "POST")
        time.sleep(1)
        with_topics = nsqd.memory_mb()
        greeting = b"  V2" + identify({"client_id": "x", "heartbeat_interval": 4000})
        open_ = []
        for number in range(connections):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", nsqd.ports["tcp"])))
            line.sendall(greeting + sub(topic_name(number % topics), "channel-0#ephemeral") + rdy(1))
            open_.append(line)
        time.sleep(1)
        with_connections, before = nsqd.memory_mb(), nsqd.cpu_s()
        beats = 0
        for line in open_:
            line.setblocking(False)
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            time.sleep(0.2)
            for line in open_:
                with suppress(BlockingIOError):
                    beats += line.recv(4096).count(HEARTBEAT)
                    line.sendall(NOP)
        return {
            "topic_kb": (with_topics - empty) * 1e3 / topics,
            "connection_kb": (with_connections - with_topics) * 1e3 / connections,
            "heartbeat_us": (nsqd.cpu_s() - before) / max(1, beats) * 1e6,
        }
