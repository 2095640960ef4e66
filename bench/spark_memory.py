"""``python -m bench.spark_memory``: measures the memory that an archive of large bodies uses.

Both writers archive a few bodies and three times as many, each in a separate job. The peak of every process
must not grow with the number of messages.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from bench.server import OURS, Program, Server

MB: Final = 1_000_000
# Part of a process's command line -> kind of process.
KINDS: Final = {
    "python_streaming_source_runner": "planner",
    "pyspark.daemon": "Python worker",
    "org.apache.spark": "JVM",
    "pyspark_nsq.jobs.archive": "driver",
}


def publish(server: Server, topic: str, count: int, size: int) -> None:
    server.ask("POST", f"/topic/create?topic={topic}")
    server.ask("POST", f"/channel/create?topic={topic}&channel=keep")
    # Random bytes, which cannot be compressed.
    body = os.urandom(size)
    for _ in range(count):
        server.ask("POST", f"/pub?topic={topic}", body)


def processes(pid: int) -> Iterator[tuple[int, str]]:
    """Yield the processes of a job and their kinds."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    for one in found:
        with suppress(OSError):
            words = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            kind = next((kind for word, kind in KINDS.items() if word in words), None)
            if kind is not None:
                yield one, kind


def peak_mib(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def archive(server: Server, folder: Path, topic: str, writer: str) -> dict[str, float]:
    """Archive the topic; return the highest peak of each kind of process, in MiB."""
    host, port = server.http
    name = f"{topic}-{writer}"
    job = subprocess.Popen(
        [
            *(sys.executable, "-m", "pyspark_nsq.jobs.archive", f"--nsqd-http-address={host}:{port}"),
            *(f"--topic={topic}", f"--channel={name}", f"--writer={writer}", "--starting-offsets=earliest"),
            *(f"--output={folder / name}", f"--checkpoint={folder / name}.checkpoint", "--available-now"),
            *("--master=local[2]", "--conf=spark.driver.memory=2g"),
        ],
        start_new_session=True,
    )
    peaks: dict[str, float] = {}
    server.forget_peak()
    while job.poll() is None:
        for pid, kind in processes(job.pid):
            peaks[kind] = max(peaks.get(kind, 0.0), peak_mib(pid))
        time.sleep(0.1)
    if job.returncode:
        raise SystemExit(f"the archive of {topic} by {writer} ended with {job.returncode}")
    return {**peaks, "nsqd": server.peak_memory_mib()}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark_memory", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--megabytes", type=int, default=60, help="of a body")
    parser.add_argument("--messages", type=int, default=4, help="and then three times as many")
    parser.add_argument("--data-root", help="where data folders are made (default: the temporary folder)")
    args = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="nsq-bench-memory-", dir=args.data_root))
    counts = (args.messages, 3 * args.messages)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        flags = [f"--max-msg-size={2 * args.megabytes * MB}", f"--max-body-size={2 * args.megabytes * MB}"]
        server = stack.enter_context(Program("nsqd", OURS, args.data_root).serving(flags))
        for count in counts:
            publish(server, f"of-{count}", count, args.megabytes * MB)
        kinds = ["nsqd", *dict.fromkeys(KINDS.values())]
        lines = []
        for writer in ("python", "spark"):
            for count in counts:
                peaks = archive(server, folder, f"of-{count}", writer)
                shutil.rmtree(folder / f"of-{count}-{writer}")
                values = " | ".join(f"{peaks.get(kind, 0.0):,.0f}" for kind in kinds)
                lines.append(f"| {writer} | {count} | {values} |")
        print(f"\nThe highest peak in MiB; bodies of {args.megabytes} MB, local[2], 2 GiB for the JVM:\n")
        print(f"| writer | bodies | {' | '.join(kinds)} |\n|---|--:|{'--:|' * len(kinds)}")
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
