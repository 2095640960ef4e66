"""The package as its users get it: built, installed into an empty environment, imported, used."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nsqclient.testing import MemoryNsqd

CLIENT = Path(__file__).parents[2] / "client"

# The cost of importing the client: the modules that it loads in addition to asyncio, and the memory in MiB in
# addition to a bare interpreter. How long that takes depends on the machine; the number of modules does not.
IMPORT = """
import re, sys
def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
before = resident()
import asyncio
others = set(sys.modules)
from nsqclient import Consumer, Producer
memory = resident() - before
import json
print(json.dumps([sorted(set(sys.modules) - others), memory / 1024]))
"""

USE = """
import asyncio, sys
from nsqclient import Config, Consumer, Producer
async def main():
    async with Producer(sys.argv[1], config=Config(deflate=False)) as producer:
        await producer.publish("t", b"x")
    async with Consumer("t", "c", nsqd_addresses=sys.argv[1]) as consumer:
        async for message in consumer:
            async with message.process():
                print(message.body.decode())
            break
asyncio.run(main())
"""


# What the client takes from the standard library in addition to what asyncio loads, on any supported Python.
STANDARD_MODULES = {
    "bisect",
    "copy",
    "dataclasses",
    "datetime",
    "hashlib",
    "importlib",
    "json",
    "random",
    "sha2",
    "sha512",
    "termios",  # of asyncio's subprocesses
    "zlib",
}

OTHERS = ("3.12", "3.13", "3.14")


def other_python(version: str) -> str | None:
    """A Python of this version, on PATH or of pyenv, that can be started; None if there is none."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for candidate in (shutil.which(f"python{version}"), *root.glob(f"versions/{version}.*/bin/python")):
        if candidate is None:
            continue
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        said = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False).stdout
        if said.strip() == version:
            return str(candidate)
    return None


def run(*command: object, **settings) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **settings,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def empty_environment(folder: Path) -> Path:
    """Make an environment; return its Python. This one's pip installs there: copying pip takes long."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    return folder / "bin/python"


def pip(python: Path, *words: object) -> str:
    return run(sys.executable, "-m", "pip", "--python", python, *words)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict[str, Path]:
    """A wheel, and a source archive with the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("built")
    builder = folder / "builder"
    python = empty_environment(builder)
    pip(python, "install", "--quiet", "--no-compile", "setuptools>=77")
    code = "import sys; from setuptools import build_meta; print(build_meta.{}(sys.argv[1]))"
    for kind in ("build_wheel", "build_sdist"):
        # The result must not depend on other files in the source folder.
        copy = folder / kind
        run("cp", "-r", CLIENT, copy)
        run("rm", "-rf", *copy.glob("*.egg-info"), copy / "build")
        run(python, "-c", code.format(kind), folder, cwd=copy)
    [wheel], [archive] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": archive}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_wheel_installs_alone_and_works(built, tmp_path, kind):
    python = empty_environment(tmp_path / "environment")
    pip(python, "install", "--quiet", built[kind])
    listed = json.loads(pip(python, "list", "--format=json"))

    assert [package["name"] for package in listed] == ["nsqclient"]
    with MemoryNsqd() as nsqd:
        assert run(python, "-W", "error", "-c", USE, nsqd.address) == "x\n"
    loaded, megabytes = json.loads(run(python, "-c", IMPORT))
    foreign = {name.partition(".")[0].lstrip("_") for name in loaded} - {"nsqclient"}
    assert foreign <= STANDARD_MODULES
    assert len(loaded) < 90
    assert megabytes < 15


@pytest.mark.slow
@pytest.mark.parametrize("version", OTHERS)
def test_wheel_works_on_other_pythons(built, tmp_path, version):
    python = other_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    run(python, "-m", "venv", "--without-pip", tmp_path / "environment")
    with zipfile.ZipFile(built["wheel"]) as wheel:
        wheel.extractall(tmp_path / "installed")
    with MemoryNsqd() as nsqd:
        said = run(
            tmp_path / "environment/bin/python",
            "-W",
            "error",
            "-c",
            USE,
            nsqd.address,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        )

    assert said == "x\n"


@pytest.mark.slow
def test_wheel_holds_package_and_nothing_else(built):
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = wheel.namelist()
    folders = {name.split("/")[0] for name in names}

    assert "nsqclient/py.typed" in names
    assert "nsqclient/wire/commands.py" in names
    assert {folder.partition("-")[0] for folder in folders} == {"nsqclient"}
    assert built["wheel"].stat().st_size < 200_000
