"""Put each fault into a copy of the project and check that a campaign or a test catches it.

python -m tests.campaign.mutations                        all of them, two at a time
python -m tests.campaign.mutations compaction-not-synced  some of them
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from typing import Final

from tests.campaign.mutations.mutation import Mutation, Stale
from tests.campaign.mutations.of_log import LOG
from tests.campaign.mutations.of_storage import STORAGE

ROOT: Final = Path(__file__).parents[3]
MUTATIONS: Final = {one.name: one for one in (*LOG, *STORAGE)}
TIME_LIMIT_S: Final = 900
# These files are not needed, and a compiled module would hide the changed source.
_LEFT_OUT: Final = shutil.ignore_patterns(
    ".*", "__pycache__", "*.so", "build", "dist", "*.egg-info", "node_modules", "docs"
)
CAUGHT: Final = "caught"


def main() -> int:
    """Try the mutations; the exit code says whether each was caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.mutations")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - MUTATIONS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    queue: SimpleQueue[Mutation] = SimpleQueue()
    for name in chosen.names or MUTATIONS:
        queue.put(MUTATIONS[name])
    with ThreadPoolExecutor(chosen.jobs) as pool:
        counts: Counter[str] = sum(pool.map(_attempt_all, [queue] * chosen.jobs), Counter())
    print(
        f"{counts.total()} mutations:", ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    )
    return counts.keys() != {CAUGHT}


def _attempt_all(queue: SimpleQueue[Mutation]) -> Counter[str]:
    """Try mutations until the queue is empty; return how many had each verdict."""
    verdicts: Counter[str] = Counter()
    with _copied_project() as copy:
        while True:
            try:
                mutation = queue.get_nowait()
            except Empty:
                return verdicts
            began = time.monotonic()
            verdict, evidence = _attempt(mutation, copy)
            verdicts[verdict] += 1
            seconds = time.monotonic() - began
            print(f"{verdict:<8} {mutation.name:<40} {seconds:4.0f} s  {evidence}", flush=True)


def _attempt(mutation: Mutation, copy: Path) -> tuple[str, str]:
    """Apply a mutation to the copy, run its commands, and undo it; return the verdict and its evidence."""
    try:
        source = mutation.apply(copy)
    except Stale as error:
        return "STALE", str(error)
    try:
        for command in mutation.caught_by:
            ran = _run(_arguments(command), copy, TIME_LIMIT_S)
            if ran.returncode == 1 and not _only_errors(ran.stdout):
                return CAUGHT, f"{command}: {_evidence(ran.stdout)}"
            if ran.returncode:
                return "BROKEN", f"{command}: {(ran.stdout + ran.stderr).strip()[-300:]}"
        return "SURVIVED", ", ".join(mutation.caught_by)
    finally:
        (copy / mutation.file).write_text(source)


@contextmanager
def _copied_project() -> Iterator[Path]:
    """Yield a copy of the project in a temporary folder. Raises RuntimeError if its source is not used."""
    with TemporaryDirectory(prefix="mutations-") as folder:
        copy = Path(folder) / "project"
        shutil.copytree(ROOT, copy, ignore=_LEFT_OUT)
        found = _run([sys.executable, "-c", "import nsqd; print(nsqd.__file__)"], copy, 60).stdout.strip()
        if not Path(found).is_relative_to(copy.resolve()):
            raise RuntimeError(f"the copy in {copy} is not what is imported, but {found}")
        yield copy


def _arguments(command: str) -> list[str]:
    words = shlex.split(command)
    if words[0].startswith("tests/"):
        return [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "", *words]
    return [sys.executable, "-m", "tests.campaign", *words, "--stop"]


def _run(arguments: list[str], folder: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PYTHONPATH": str(folder),
        # Bytecode of one mutation would hide another one of the same length within the same second.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        return subprocess.run(
            arguments,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(arguments, 124, "", f"no end after {seconds} s")


def _only_errors(output: str) -> bool:
    """Say whether tests only had errors in their set-up, as on a busy machine, and none has failed."""
    lines = output.splitlines()
    return any(line.startswith("ERROR") for line in lines) and not any(
        line.startswith("FAILED") for line in lines
    )


def _evidence(output: str) -> str:
    """Return the line that says what is wrong: pytest's failed test, or a campaign's violation."""
    lines = output.splitlines()
    failed = [line for line in lines if line.startswith("FAILED")]
    violations = [line.strip() for line in lines if line.startswith("  ")]
    return (failed or violations or lines or [""])[0][:200]


if __name__ == "__main__":
    sys.exit(main())
