"""Each program of this repository that a workflow runs exists, and each stage that it names."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = [*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / ".gitlab-ci.yml"]
STAGES = subprocess.run([ROOT / "test", "--help"], capture_output=True, text=True, check=True).stdout
STAGES = STAGES.partition("Stages: ")[2].split()


def commands(part):
    """Yield the values of ``run`` and ``script``, wherever they are."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        if key in {"run", "script"}:
            yield value
        elif isinstance(value, dict | list):
            yield from commands(value)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_workflow_runs_programs_and_stages_that_exist(file):
    words = [command.split() for command in commands(yaml.safe_load(file.read_text(encoding="utf-8")))]
    programs = {word for command in words for word in command if re.match(r"(\./|scripts/)", word)}
    stages = {word for command in words if command[0] == "./test" for word in command[1:]} - {"--strict"}

    assert programs
    assert [program for program in programs if not (ROOT / program).is_file()] == []
    assert stages <= set(STAGES)


def test_weekly_workflow_makes_targets_that_exist():
    weekly = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))[
        "jobs"
    ]["weekly"]
    targets = {words.split()[0] for words in weekly["strategy"]["matrix"]["target"]}

    assert targets <= set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_stages_are_sessions_of_nox():
    sessions = re.findall(r"^@nox\.session\ndef (\w+)", (ROOT / "noxfile.py").read_text(), re.MULTILINE)

    assert sorted(sessions) == sorted(STAGES)
