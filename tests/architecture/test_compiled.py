"""The list of what is compiled in setup.py, and that the build that runs says what it is."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import setup

PROJECT = Path(setup.__file__).parent


@pytest.mark.parametrize("package", setup.COMPILED)
def test_every_module_of_the_broker_is_compiled_or_left_out_for_a_reason(package):
    files = (PROJECT / package.replace(".", "/")).glob("*.py")
    modules = {file.stem for file in files} - {"__init__"}
    compiled, left_out = set(setup.COMPILED[package]), setup.LEFT_OUT[package]

    assert compiled | left_out.keys() == modules
    assert not compiled & left_out.keys()
    assert all(left_out.values())


def test_nsqd_says_which_build_it_is():
    origin = importlib.util.find_spec("nsqd.engine.block").origin
    build = "pure" if origin.endswith(".py") else "compiled"

    said = subprocess.run(
        [sys.executable, "-m", "nsqd", "--version"], capture_output=True, text=True, check=True
    )

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert said.stdout == f"nsqd v1.3.0 (built w/python{version}-{build})\n"
