"""Modules of nsqd that run for each message are compiled; no interpreted class has a compiled base."""

import ast
import asyncio
import importlib.util
import subprocess
import sys
from collections import Counter
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

import setup
from nsqclient.wire.frames import FrameParser
from nsqcore.version import build as build_name
from nsqd.build import KIND
from tests.support.turns import Bench
from tests.support.wire import pub

PROJECT = Path(setup.__file__).parent


COMPILED = {f"{package}.{module}" for package, modules in setup.COMPILED.items() for module in modules}
MESSAGES = 50
# Tests replace the disk; without replicas, replication decides only that no publisher waits.
INTERPRETED = {
    *("nsqd.log.disk", "nsqd.replication.primary"),
    *("nsqd.server.replication.service", "nsqd.server.replication.connection"),
}


def test_compiled_modules_exist():
    assert [
        name for name in COMPILED if not (PROJECT / name.replace(".", "/")).with_suffix(".py").exists()
    ] == []


@pytest.mark.skipif(KIND != "pure", reason="calls of compiled code are not counted")
async def test_modules_that_run_for_each_message_are_compiled(tmp_path):
    calls = Counter()
    bench = Bench(tmp_path)
    publisher, consumer = bench.connect(), bench.connect()
    consumer.says(b"SUB t c\nRDY 10\n")
    await bench.rest()
    sys.setprofile(
        lambda frame, event, _: calls.update([frame.f_globals["__name__"]] if event == "call" else [])
    )
    try:
        for _ in range(MESSAGES):
            sent = len(consumer.sent)
            publisher.connection.data_received(pub("t", b"m"))
            bench.write_batch.run()
            await asyncio.sleep(0)
            bench.write_batch.run()
            [(_, message)] = FrameParser().feed(consumer.sent[sent:])
            consumer.connection.data_received(b"FIN %b\n" % message[10:26])
            bench.write_batch.run()
    finally:
        sys.setprofile(None)
    await bench.rest()
    hot = {name for name, count in calls.items() if name.startswith("nsqd.") and count >= MESSAGES}

    assert "nsqd.engine.channel" in hot
    assert hot - COMPILED - INTERPRETED == set()


def test_interpreted_classes_do_not_inherit_from_compiled_ones():
    # CPython refuses that only in the compiled build, and only when the first object of the class is made.
    classes = [
        (module_of(file), node)
        for file in sorted((PROJECT / "nsqd").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    names = {node.name for module, node in classes if module in COMPILED}

    assert names >= {"Channel", "TopicLog"}
    assert not [
        f"{module}.{node.name}"
        for module, node in classes
        if module not in COMPILED and names & {ast.unparse(base) for base in node.bases}
    ]


def test_compiled_modules_have_no_async_generators():
    # mypyc refuses them, which only the compiled build would show.
    functions = [
        (name, node)
        for name in sorted(COMPILED)
        for node in ast.walk(ast.parse((PROJECT / name.replace(".", "/")).with_suffix(".py").read_text()))
        if isinstance(node, ast.AsyncFunctionDef)
    ]

    assert functions
    assert [
        f"{name}.{node.name}"
        for name, node in functions
        if any(isinstance(part, ast.Yield) for part in ast.walk(node))
    ] == []


def module_of(file):
    return ".".join(file.relative_to(PROJECT).with_suffix("").parts)


def test_nsqd_names_its_build():
    origin = importlib.util.find_spec("nsqd.log.frames").origin
    kind = "pure" if origin.endswith(".py") else "compiled"

    said = subprocess.run(
        [sys.executable, "-m", "nsqd", "--version"], capture_output=True, text=True, check=True
    )

    assert said.stdout == f"nsqd v1.3.0 (built w/{build_name(kind)})\n"


def test_setup_compiles_nothing_for_name_and_version(monkeypatch):
    monkeypatch.setattr(setup, "compiled", lambda: {"ext_modules": ["compiled"]})

    assert setup.wanted_for(["dist_info", "--output-dir", "x"]) == {}
    assert setup.wanted_for(["egg_info"]) == {}
    assert setup.wanted_for(["bdist_wheel"]) == {"ext_modules": ["compiled"]}
    assert setup.wanted_for(["build_ext", "--inplace"]) == {"ext_modules": ["compiled"]}


def test_setup_without_mypy_requires_it_first(monkeypatch):
    monkeypatch.setattr(setup.importlib.util, "find_spec", lambda name: None)

    needed = setup.wanted_for(["egg_info"])["setup_requires"]

    assert any(each.startswith("mypy") for each in needed)
    assert not any(each.startswith("nsqclient") for each in needed)


@pytest.fixture
def compiled_copy():
    """Load scripts/compiled_copy as a module."""
    loader = SourceFileLoader("compiled_copy", str(PROJECT / "scripts" / "compiled_copy"))
    spec = importlib.util.spec_from_loader("compiled_copy", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_compiled_copy_takes_libraries_of_the_same_sources_only(compiled_copy, tmp_path):
    packages, folder = tmp_path / "site-packages", tmp_path / "copy"
    for name in ("nsqd__mypyc.x.so", "nsqd/log/frames.x.so", "other/log/frames.x.so", "nsqd/log/frames.py"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(name)
    compiled_copy.keep(folder, packages, "these")
    folder.mkdir()

    assert not compiled_copy.taken(folder, "others")
    assert list(folder.iterdir()) == []

    assert compiled_copy.taken(folder, "these")
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == {
        ".made-of",
        "nsqd__mypyc.x.so",
        "nsqd/log/frames.x.so",
    }
    assert (folder / ".made-of").read_text() == "these"
