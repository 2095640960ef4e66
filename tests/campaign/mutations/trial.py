"""Tries mutations in a copy of the project, so that the tree itself is never changed."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.campaign.mutations.mutation import Mutation, Stale

ROOT: Final = Path(__file__).parents[3]
TIME_LIMIT_S: Final = 900
# Exit code of pytest and the campaigns if the run was complete and found a fault.
_WRONG: Final = 1
# These files are not needed, and a compiled module would hide the changed source.
_LEFT_OUT: Final = shutil.ignore_patterns(
    ".*", "__pycache__", "*.so", "build", "dist", "*.egg-info", "node_modules", "docs"
)


class Verdict(StrEnum):
    """The result of a mutation."""

    CAUGHT = "caught"
    EQUIVALENT = "equivalent"
    # No command caught it.
    SURVIVED = "SURVIVED"
    # The source has changed, so the mutation no longer applies.
    STALE = "STALE"
    # The command neither passed nor failed, so it proves nothing.
    BROKEN = "BROKEN"

    @property
    def is_good(self) -> bool:
        return self in {Verdict.CAUGHT, Verdict.EQUIVALENT}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one mutation, the command that gave it, and the line that shows it."""

    mutation: Mutation
    verdict: Verdict
    command: str = ""
    evidence: str = ""
    seconds: float = 0.0


@contextmanager
def copied_project() -> Iterator[Path]:
    """Yield a copy of the project in a temporary folder. Raises RuntimeError if its source is not used."""
    with TemporaryDirectory(prefix="mutations-") as folder:
        copy = Path(folder) / "project"
        shutil.copytree(ROOT, copy, ignore=_LEFT_OUT)
        found = _run([sys.executable, "-c", "import nsqd; print(nsqd.__file__)"], copy, 60).stdout.strip()
        if not Path(found).is_relative_to(copy.resolve()):
            raise RuntimeError(f"the copy in {copy} is not what is imported, but {found}")
        yield copy


def attempt(mutation: Mutation, copy: Path) -> Outcome:
    """Apply a mutation to the copy, run the commands that should catch it, and undo it."""
    began = time.monotonic()
    try:
        source = mutation.apply(copy)
    except (Stale, SyntaxError) as error:
        return Outcome(mutation, Verdict.STALE, evidence=str(error))
    try:
        if mutation.equivalent:
            return Outcome(mutation, Verdict.EQUIVALENT, evidence=mutation.equivalent)
        for command in mutation.caught_by:
            ran = _run(_arguments(command), copy, TIME_LIMIT_S)
            seconds = time.monotonic() - began
            if ran.returncode == _WRONG and not _only_errors(ran.stdout):
                return Outcome(mutation, Verdict.CAUGHT, command, _evidence(ran.stdout), seconds)
            if ran.returncode:
                evidence = (ran.stdout + ran.stderr).strip()[-300:]
                return Outcome(mutation, Verdict.BROKEN, command, evidence, seconds)
        commands = ", ".join(mutation.caught_by)
        return Outcome(mutation, Verdict.SURVIVED, commands, seconds=time.monotonic() - began)
    finally:
        (copy / mutation.file).write_text(source)


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
    """Return the line that says what is wrong: pytest's failed test, or a campaign's broken promise."""
    lines = output.splitlines()
    failed = [line for line in lines if line.startswith("FAILED")]
    promises = [line.strip() for line in lines if line.startswith("  ")]
    return (failed or promises or lines or [""])[0][:200]
