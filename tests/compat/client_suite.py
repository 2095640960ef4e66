"""Fetch a public client's source, install it separately, and run its own test suite against our daemons."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

REPOSITORY: Final = Path(__file__).parents[2]
PLUGINS: Final = Path(__file__).parent / "plugins"
DAEMONS: Final = ("nsqd", "nsqlookupd", "nsqadmin")

# This variable names a folder whose programs are tested instead of ours. The reference numbers of
# docs/evidence/compatibility.md were made with it.
OTHER_DAEMONS: Final = "NSQ_COMPAT_BIN"
# With this variable every nsqd of every suite has a replica, and answers when the replica has the message.
REPLICATED: Final = "NSQ_COMPAT_REPLICATED"


@dataclass(frozen=True)
class Client:
    """A published client and what its suite needs in addition.

    *requirements* are pinned where the suite was written for older versions than today's.
    """

    name: str
    version: str
    requirements: tuple[str, ...]


@dataclass
class Outcome:
    """The result of each test of a suite."""

    passed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{len(self.passed)} passed, {len(self.skipped)} skipped, {len(self.failed)} failed"

    def must_be_all_passed(self, expected: int) -> None:
        """Fail unless exactly *expected* tests passed: a suite that silently runs fewer tests has failed."""
        reasons = "\n".join(f"--- {name}\n{reason}" for name, reason in self.failed.items())
        assert not self.failed, f"{self}\n{reasons}"
        assert (len(self.passed), self.skipped) == (expected, [])


def is_reference_run() -> bool:
    """Whether other daemons than ours are tested; if so, tests of what only ours promise are left out."""
    return OTHER_DAEMONS in os.environ


def fetch(client: Client) -> Path:
    """The client's source archive, from the package registry or from an earlier run's cache."""
    folder = _cache() / "archives"
    pattern = f"{client.name}-{client.version}.tar.gz"
    if not list(folder.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", ":all:", "--no-deps"]
        _call([*command, "--dest", str(folder), f"{client.name}=={client.version}"], seconds=300)
    return next(folder.glob(pattern))


def unpack(archive: Path, folder: Path) -> Path:
    """Extract into *folder*; returns the one directory the archive consists of."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (root,) = [path for path in folder.iterdir() if path.is_dir()]
    return root


def environment(client: Client) -> Path:
    """The Python of a virtual environment with this client, made once for each set of requirements."""
    archive = fetch(client)
    wanted = [str(archive), *client.requirements]
    digest = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:12]
    folder = _cache() / f"{client.name}-{digest}"
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if not complete.exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        _call([str(python), "-m", "pip", "install", "--quiet", *wanted], seconds=600)
        complete.touch()
    return python


# One replica for all nsqd that a suite starts; the first nsqd starts it in the suite's own network.
_REPLICATED: Final = """#!/bin/sh
export PYTHONPATH="{repository}"
if mkdir "{folder}/replica" 2>/dev/null; then
    "{python}" -m nsqd --node-id=1 --data-path="{folder}/replica" --broadcast-address=127.0.0.1 \\
        --cluster-secret-file="{folder}/secret" \\
        --tcp-address=127.0.0.1:24150 --http-address=127.0.0.1:24151 >"{folder}/replica.log" 2>&1 &
fi
exec "{python}" -m nsqd --node-id=$((2 + $$ % 1000)) --replicas=1 --replica=127.0.0.1:24150 \\
    --cluster-secret-file="{folder}/secret" "$@"
"""


def run(
    python: Path,
    tests: Path,
    work: Path,
    options: Sequence[str],
    ini: str = "",
    seconds: float = 600,
    *,
    replicated: bool = False,
) -> Outcome:
    """Run a pytest suite in its own environment, folder and network, with our daemons first on PATH.

    If *replicated*, every nsqd has a replica.
    """
    replicated = replicated or REPLICATED in os.environ
    work.mkdir(parents=True, exist_ok=True)
    configuration = work / "suite.ini"
    configuration.write_text(f"[pytest]\n{ini}\n")
    report = work / "report.xml"
    command = [
        *(str(python), str(PLUGINS / "own_network.py"), str(python), "-m", "pytest", str(tests)),
        *(
            "-c",
            str(configuration),
            f"--rootdir={tests.parent}",
            f"--junitxml={report}",
            "-q",
            "--timeout=60",
        ),
        *("-p", "no:cacheprovider", *options),
    ]
    path = f"{_daemons(work / 'bin', replicated=replicated)}{os.pathsep}{os.environ['PATH']}"
    # With this HOME none of the user's own configuration is read.
    variables = {"PATH": path, "PYTHONPATH": str(PLUGINS), "HOME": str(work), "LANG": "C.UTF-8"}
    log_path = work / "output.txt"
    with log_path.open("wb") as log:
        suite = subprocess.Popen(
            command, cwd=work, env=variables, stdout=log, stderr=log, start_new_session=True
        )
        try:
            suite.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the suite did not end within {seconds} s:\n{_tail(log_path)}")
        finally:
            # This also ends daemons that a broken suite has left behind: they are in its session.
            _kill_group(suite)
    if not report.exists():
        pytest.fail(f"the suite did not run:\n{_tail(log_path)}")
    return _outcome(report)


def _daemons(folder: Path, *, replicated: bool) -> Path:
    """A folder with programs named as in NSQ that run our daemons."""
    if is_reference_run():
        return Path(os.environ[OTHER_DAEMONS])
    folder.mkdir()
    for name in DAEMONS:
        program = folder / name
        daemon = f'"{sys.executable}" -m {name} "$@"'
        program.write_text(f'#!/bin/sh\nexport PYTHONPATH="{REPOSITORY}"\nexec {daemon}\n')
        if replicated and name == "nsqd":
            (folder / "secret").write_text("compat" * 8)
            program.write_text(
                _REPLICATED.format(repository=REPOSITORY, folder=folder, python=sys.executable)
            )
        program.chmod(0o755)
    return folder


def _outcome(report: Path) -> Outcome:
    outcome = Outcome()
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        failed = [part for part in case if part.tag in {"failure", "error"}]
        if failed:
            outcome.failed[name] = "\n".join(part.text or "" for part in case)[-6000:]
        elif case.find("skipped") is not None:
            outcome.skipped.append(name)
        else:
            outcome.passed.append(name)
    return outcome


def _cache() -> Path:
    folder = Path(tempfile.gettempdir(), f"nsq-compat-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _call(command: list[str], seconds: float) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-6000:]
