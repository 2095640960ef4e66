"""The programs of the client's pages pass two type checkers; those that need nothing else are run."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

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
def test_programs_of_pages_pass_mypy_strict(folder):
    # The client is checked as users install it, not as a part of this project.
    cache = PROJECT / ".mypy_cache" / "pages"
    checked = run("-m", "mypy", "--strict", f"--cache-dir={cache}", "--config-file=", ".", cwd=folder)

    assert checked.returncode == 0, checked.stdout
    assert len(list(folder.iterdir())) >= 10


@pytest.mark.slow
def test_programs_of_pages_pass_pyright_strict(folder):
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "venv": "."}')
    checked = run("-m", "pyright", "--pythonpath", sys.executable, ".", cwd=folder)

    assert checked.returncode == 0, checked.stdout


def recipe_with(text: str, nsqd: MemoryNsqd) -> str:
    [program] = [recipe for recipe in RECIPES if text in recipe]
    return program.replace("127.0.0.1:4150", nsqd.address).replace("127.0.0.1:4161", nsqd.lookupd_address)


@pytest.mark.parametrize("channel", ["audit", "nightly"])
def test_loop_of_recipes_prints_what_it_read(tmp_path, memory_nsqd, channel):
    memory_nsqd.publish("orders", b"17")
    ended = run("-W", "error", "-c", recipe_with(f'"{channel}"', memory_nsqd), cwd=tmp_path)

    assert (ended.stdout, ended.stderr) == ("17\n", "")
    assert memory_nsqd.finished("orders", channel) == [b"17"]


@pytest.mark.parametrize(
    ("text", "call", "topic"), [("SlowHandlers", "", "orders"), ("post_fork", "post_fork(None)", "workers")]
)
def test_publisher_of_recipes_publishes(tmp_path, memory_nsqd, text, call, topic):
    ended = run("-W", "error", "-c", recipe_with(text, memory_nsqd) + call, cwd=tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(memory_nsqd.published(topic)) == 1


async def test_web_service_of_recipes_publishes_and_reports_its_health():
    with MemoryNsqd() as nsqd:
        names: dict[str, Any] = {}
        exec(recipe_with("FastAPI", nsqd), names)
        app = names["app"]
        async with app.router.lifespan_context(app):
            answers = [await answer(app, *request) for request in (("POST", "/orders"), ("GET", "/healthz"))]
            nsqd.refuse("E_BAD_MESSAGE")
            answers.append(await answer(app, "POST", "/orders"))

        assert answers == [(200, None), (200, [nsqd.address]), (503, {"detail": "try again later"})]
        assert nsqd.published("orders") == [b"17"]


async def answer(app: Any, method: str, path: str) -> tuple[int, Any]:
    """The status and the JSON of one request with ``number=17`` to an ASGI program."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    scope = {"type": "http", "method": method, "path": path, "query_string": b"number=17", "headers": []}
    await app(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(event.get("body", b"") for event in sent[1:]))


def test_tests_of_recipes_pass(tmp_path):
    tests = [recipe for recipe in RECIPES if "def test_" in recipe]
    for number, program in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(program)
    ended = run("-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", cwd=tmp_path)

    assert ended.returncode == 0, ended.stdout
    assert f"{len(tests)} passed" in ended.stdout


@pytest.mark.parametrize("program", [program for program in FRAMEWORKS if "asyncio.run" in program])
def test_programs_of_frameworks_run(tmp_path, program):
    with MemoryNsqd() as nsqd:
        (tmp_path / "program.py").write_text(program.replace("127.0.0.1:4150", nsqd.address))
        ended = run("program.py", cwd=tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("channel", "text"),
    [
        ("billing", "Retry(5"),
        ("billing", "NSQLOOKUPD"),
        ("typed", '"typed"'),
        ("threads", '"threads"'),
        ("warehouse", '"warehouse"'),
    ],
)
def test_worker_of_recipes_does_its_work_and_ends_on_sigterm(tmp_path, channel, text):
    if channel == "warehouse":
        with sqlite3.connect(tmp_path / "orders.db") as database:
            database.execute("CREATE TABLE orders (body)")
    with MemoryNsqd() as nsqd:
        nsqd.publish("orders", b'{"number": 17}')
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", recipe_with(text, nsqd)],
            cwd=tmp_path,
            env={**os.environ, "NSQLOOKUPD": nsqd.lookupd_address},
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
