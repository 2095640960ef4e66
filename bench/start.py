"""``python -m bench.start``: measures how long a daemon takes to open its ports and to answer first."""

import argparse
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Final

from bench.ports import free_port

GIVE_UP_S: Final = 20.0
POLL_S: Final = 0.002
DAEMONS: Final = ("nsqd", "nsqlookupd", "nsqadmin")


@dataclass(frozen=True, slots=True)
class Start:
    """Times of a start, in seconds since the process was started."""

    open_s: float
    answered_s: float


def command(program: str, daemon: str, folder: str, http: int) -> list[str]:
    """Return the command line; *program* is the command of a daemon with ``{daemon}`` for its name."""
    words = [*shlex.split(program.format(daemon=daemon)), f"--http-address=127.0.0.1:{http}"]
    if daemon == "nsqadmin":
        return [*words, "--nsqd-http-address=127.0.0.1:1"]
    words.append(f"--tcp-address=127.0.0.1:{free_port()}")
    return [*words, f"--data-path={folder}"] if daemon == "nsqd" else words


def measure(program: str, daemon: str) -> Start:
    """Start a daemon on a new folder, request /ping, and stop it."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        words = command(program, daemon, folder, port)
        began = time.perf_counter()
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        try:
            connection = connected(port, began)
            opened = time.perf_counter()
            with connection:
                connection.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
                if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
                    raise SystemExit(f"{daemon} does not answer /ping")
            return Start(opened - began, time.perf_counter() - began)
        finally:
            process.terminate()
            process.wait(GIVE_UP_S)


def connected(port: int, began: float) -> socket.socket:
    while True:
        probe = socket.socket()
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            return probe
        probe.close()
        if time.perf_counter() - began > GIVE_UP_S:
            raise SystemExit("the port stays closed")
        time.sleep(POLL_S)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.start", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--cmd", default=f"{sys.executable} -m {{daemon}}", help="how a daemon is called")
    parser.add_argument("--peer-cmd", default="", metavar="CMD", help="such as /opt/nsq/bin/{daemon}")
    parser.add_argument("--repeat", type=int, default=7)
    args = parser.parse_args(argv)
    programs = {"ours": args.cmd} | ({"peer": args.peer_cmd} if args.peer_cmd else {})
    print("| daemon | | ports open (ms) | first answer (ms) |\n|---|---|--:|--:|")
    for daemon in DAEMONS:
        starts: dict[str, list[Start]] = {name: [] for name in programs}
        for _ in range(args.repeat):
            for name, program in programs.items():
                starts[name].append(measure(program, daemon))
        for name, found in starts.items():
            opened = statistics.median(start.open_s for start in found) * 1000
            answered = statistics.median(start.answered_s for start in found) * 1000
            print(f"| {daemon} | {name} | {opened:.0f} | {answered:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
