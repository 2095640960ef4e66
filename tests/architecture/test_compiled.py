"""Each module that setup.py compiles exists, and no interpreted class inherits from a compiled one."""

import ast
import importlib.util
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

import setup
from nsqcore.version import build as build_name

PROJECT = Path(setup.__file__).parent


def test_each_compiled_module_exists():
    files = [
        PROJECT / package.replace(".", "/") / f"{module}.py"
        for package, modules in setup.COMPILED.items()
        for module in modules
    ]

    assert [file for file in files if not file.exists()] == []


def test_no_interpreted_class_inherits_from_a_compiled_one():
    # CPython refuses that only in the compiled build, and only when the first object of the class is made.
    compiled = {f"{package}.{module}" for package, modules in setup.COMPILED.items() for module in modules}
    classes = [
        (module_of(file), node)
        for file in sorted((PROJECT / "nsqd").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    names = {node.name for module, node in classes if module in compiled}

    assert names >= {"Channel", "LogWriter"}
    assert not [
        f"{module}.{node.name}"
        for module, node in classes
        if module not in compiled and names & {ast.unparse(base) for base in node.bases}
    ]


def module_of(file):
    return ".".join(file.relative_to(PROJECT).with_suffix("").parts)


def test_nsqd_says_which_build_it_is():
    origin = importlib.util.find_spec("nsqd.log.frames").origin
    kind = "pure" if origin.endswith(".py") else "compiled"

    said = subprocess.run(
        [sys.executable, "-m", "nsqd", "--version"], capture_output=True, text=True, check=True
    )

    assert said.stdout == f"nsqd v1.3.0 (built w/{build_name(kind)})\n"


def test_who_asks_for_the_name_and_the_version_does_not_wait_for_what_is_compiled(monkeypatch):
    monkeypatch.setattr(setup, "compiled", lambda: {"ext_modules": ["compiled"]})

    assert setup.wanted_for(["dist_info", "--output-dir", "x"]) == {}
    assert setup.wanted_for(["egg_info"]) == {}
    assert setup.wanted_for(["bdist_wheel"]) == {"ext_modules": ["compiled"]}
    assert setup.wanted_for(["build_ext", "--inplace"]) == {"ext_modules": ["compiled"]}


def test_without_mypy_the_answer_is_what_has_to_be_installed_first(monkeypatch):
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


def test_what_was_compiled_for_the_image_is_taken_for_the_same_sources_and_no_others(compiled_copy, tmp_path):
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
