"""The programs of the client's pages pass two type checkers; those that need nothing else are run."""

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from nsqclient.testing import MemoryNsqd
from tests.support.waiting import wait_until

PROJECT = Path(__file__).parents[2]


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (PROJECT / "docs" / page).read_text(), re.DOTALL)


RECIPES = programs("client-recipes.md")
FRAMEWORKS = programs("client-faststream.md") + programs("client-taskiq.md")
EXAMPLES = programs("client.md") + FRAMEWORKS


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for number, program in enumerate([*RECIPES, *EXAMPLES]):
        (folder / f"program_{number}.py").write_text(program)
    return folder


@pytest.mark.slow
def test_the_programs_of_the_pages_pass_mypy_strict(folder):
    # The client is checked as users install it, not as a part of this project.
    checked = run("-m", "mypy", "--strict", "--no-incremental", "--config-file=", ".", cwd=folder)

    assert checked.returncode == 0, checked.stdout
    assert len(list(folder.iterdir())) >= 10


@pytest.mark.slow
def test_the_programs_of_the_pages_pass_pyright_strict(folder):
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "venv": "."}')
    checked = run("-m", "pyright", "--pythonpath", sys.executable, ".", cwd=folder)

    assert checked.returncode == 0, checked.stdout


def test_the_loop_of_the_recipes_prints_what_it_read(tmp_path):
    [program] = [recipe for recipe in RECIPES if "async for" in recipe]
    with MemoryNsqd() as nsqd:
        nsqd.publish("orders", b"17")
        ended = run("-W", "error", "-c", program.replace("127.0.0.1:4150", nsqd.address), cwd=tmp_path)

        assert (ended.stdout, ended.stderr) == ("17\n", "")
        assert nsqd.finished("orders", "audit") == [b"17"]


def test_the_tests_of_the_recipes_pass(tmp_path):
    tests = [recipe for recipe in RECIPES if "def test_" in recipe]
    for number, program in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(program)
    ended = run("-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", cwd=tmp_path)

    assert ended.returncode == 0, ended.stdout
    assert f"{len(tests)} passed" in ended.stdout


@pytest.mark.parametrize("program", [program for program in FRAMEWORKS if "asyncio.run" in program])
def test_the_programs_of_the_frameworks_run(tmp_path, program):
    with MemoryNsqd() as nsqd:
        (tmp_path / "program.py").write_text(program.replace("127.0.0.1:4150", nsqd.address))
        ended = run("program.py", cwd=tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("channel", ["billing", "typed", "threads", "warehouse"])
def test_a_worker_of_the_recipes_does_its_work_and_ends_on_sigterm(tmp_path, channel):
    program = next(recipe for recipe in RECIPES if f'"{channel}"' in recipe and "NSQLOOKUPD" not in recipe)
    if channel == "warehouse":
        with sqlite3.connect(tmp_path / "orders.db") as database:
            database.execute("CREATE TABLE orders (body)")
    with MemoryNsqd() as nsqd:
        nsqd.publish("orders", b'{"number": 17}')
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program.replace("127.0.0.1:4150", nsqd.address)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            wait_until(lambda: nsqd.finished("orders", channel), "it was handled", seconds=20)
        finally:
            process.terminate()
            output, _ = process.communicate(timeout=20)

    assert process.returncode == 0
    if channel == "typed":
        assert output == "18\n"
