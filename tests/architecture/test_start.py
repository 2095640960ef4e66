"""A program loads a heavy library only when it needs the library."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The HTTP library, the metrics, the templates.
HEAVY = ("aiohttp", "prometheus_client", "jinja2")


@pytest.mark.parametrize(
    "program", ["nsqd.cli", "nsqlookupd.cli", "nsqadmin.cli", "nsqd.drain", "devcluster.cli"]
)
def test_daemons_load_no_heavy_library_before_ports_are_open(program):
    code = f"import sys, {program}; print(sorted(set(sys.modules) & set({HEAVY!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "[]"


SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
# The event loop, the client and everything larger: with them --version and --help would take twice as long.
NOT_FOR_A_LOOK = (
    *("asyncio", "uvloop", "nsqclient._config", "msgspec", "yarl", "pyspark", "locust", "kubernetes"),
    *HEAVY,
)
ASKS = f"""
import sys
from importlib import import_module
_, module, function = sys.argv
try:
    for flag in ("--version", "--help"):
        sys.argv = [module, flag]
        try:
            getattr(import_module(module), function)()
        except SystemExit as ended:
            assert not ended.code
finally:
    print("loaded:", *sorted(set(sys.modules).intersection({NOT_FOR_A_LOOK!r})))
"""


@pytest.mark.parametrize("script", SCRIPTS)
def test_version_and_help_load_no_heavy_library(script):
    module, function = SCRIPTS[script].split(":")
    done = subprocess.run(
        [sys.executable, "-c", ASKS, module, function],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("module", ["nsqd.server.daemon", "nsqlookupd.daemon", "nsqadmin.daemon"])
def test_libraries_of_metrics_and_sign_in_are_loaded_when_needed(module):
    libraries = {"prometheus_client", "joserfc", "authlib"}
    code = f"import sys, {module}; print({libraries} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "set()"


# A daemon, and a tool with subcommands.
EACH_PARSER = ("nsqd", "nsq-load")
RUNS = """
import sys
from importlib import import_module
_, module, function, flag = sys.argv
sys.argv = [module, flag]
sys.exit(getattr(import_module(module), function)())
"""


def print_version(script: str, stdout: int) -> tuple[int, str]:
    """Return the exit code and what was said on stderr. Streams are buffered, as users have them."""
    module, function = SCRIPTS[script].split(":")
    done = subprocess.run(
        [sys.executable, "-c", RUNS, module, function, "--version"],
        cwd=ROOT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("script", EACH_PARSER)
def test_version_that_cannot_be_written_is_failure_with_one_sentence(script):
    with Path("/dev/full").open("wb") as full:
        ended = print_version(script, full.fileno())

    assert ended == (1, "ERROR: failed to write to stdout - no space left on device\n")


@pytest.mark.parametrize("script", EACH_PARSER)
def test_version_without_reader_ends_command_as_sigpipe_does(script):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert print_version(script, writer) == (141, "")
    finally:
        os.close(writer)
