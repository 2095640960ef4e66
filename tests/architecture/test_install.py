"""scripts/install installs the locked versions, or says that it cannot and installs other allowed ones."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Replaces .venv/bin/python: notes its calls, and fails with *status* when locked versions are asked for.
PYTHON = """#!/bin/sh
echo "$*" >>"$(dirname "$0")/calls"
case "$*" in *--constraint*) exit {status} ;; esac
"""


@pytest.fixture
def project(tmp_path):
    for file in (
        "pyproject.toml",
        "client/pyproject.toml",
        "pipelines/pyproject.toml",
        "constraints.txt",
        "scripts/install",
    ):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    script(tmp_path / "scripts/web", "#!/bin/sh\n")
    return tmp_path


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def install(project, *, locked_are_there):
    script(project / ".venv/bin/python", PYTHON.format(status=0 if locked_are_there else 1))
    calls = project / ".venv/bin/calls"
    calls.write_text("")
    done = subprocess.run(
        ["bash", project / "scripts/install", "dev"], capture_output=True, text=True, check=True
    )
    return [call for call in calls.read_text().splitlines() if call.startswith("-m pip")], done.stderr


def test_locked_versions_are_taken_once(project):
    calls, _ = install(project, locked_are_there=True)

    assert [call.split(" -e ")[0].split()[-2:] for call in calls] == [["--constraint", "constraints.txt"]]
    assert install(project, locked_are_there=True)[0] == []


def test_missing_locked_versions_are_reported_and_ranges_used(project):
    calls, said = install(project, locked_are_there=False)

    assert ["--constraint" in call for call in calls] == [True, False]
    assert "cannot be had" in said


@pytest.mark.parametrize("file", ["pyproject.toml", "client/pyproject.toml", "constraints.txt"])
def test_changed_requirements_are_installed_again(project, file):
    install(project, locked_are_there=True)
    (project / file).write_text((project / file).read_text() + "# one more\n")

    assert len(install(project, locked_are_there=True)[0]) == 1


@pytest.mark.parametrize("program", ["scripts/install", "test"])
@pytest.mark.parametrize(("word", "status"), [("--help", 0), ("-h", 0), ("--no-such-option", 2)])
def test_help_and_mistyped_flags_install_nothing(project, program, word, status):
    shutil.copy(ROOT / program, project / program)
    script(project / ".venv/bin/python", PYTHON.format(status=0))

    done = subprocess.run([project / program, word], capture_output=True, text=True, check=False)

    assert done.returncode == status
    assert (done.stdout if status == 0 else done.stderr).strip()
    assert not (project / ".venv/bin/calls").exists()


def test_words_of_install_may_come_in_any_order(project):
    script(project / ".venv/bin/python", PYTHON.format(status=0))

    subprocess.run(
        ["bash", project / "scripts/install", "dev", "--compiled"], capture_output=True, check=True
    )

    calls = (project / ".venv/bin/calls").read_text().splitlines()
    assert [call for call in calls if "-e .[dev]" in call]
    assert calls[-1].endswith("--no-deps -e .")
