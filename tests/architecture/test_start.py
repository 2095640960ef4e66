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
def test_what_is_loaded_before_ports_are_open_is_light(program):
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
_, module, function, flag = sys.argv
sys.argv = [module, flag]
try:
    getattr(import_module(module), function)()
finally:
    print("loaded:", *sorted(set(sys.modules).intersection({NOT_FOR_A_LOOK!r})))
"""


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_whoever_only_asks_for_version_or_help_does_not_wait_for_more(script, flag):
    module, function = SCRIPTS[script].split(":")
    done = subprocess.run(
        [sys.executable, "-c", ASKS, module, function, flag],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("daemon", ["nsqd", "nsqlookupd", "nsqadmin"])
def test_what_draws_figures_is_loaded_when_somebody_asks_for_them(daemon):
    module = "nsqd.server.daemon" if daemon == "nsqd" else f"{daemon}.daemon"
    code = f"import sys, {module}; print('prometheus_client' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "False"


def test_what_signs_people_in_is_loaded_where_they_have_to():
    code = "import sys, nsqadmin.daemon; print({'joserfc', 'authlib'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "set()"


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


@pytest.mark.parametrize("script", SCRIPTS)
def test_version_that_cannot_be_written_is_failure_with_one_sentence(script):
    with Path("/dev/full").open("wb") as full:
        ended = print_version(script, full.fileno())

    assert ended == (1, "ERROR: failed to write to stdout - no space left on device\n")


@pytest.mark.parametrize("script", SCRIPTS)
def test_version_that_nobody_reads_ends_command_as_sigpipe_does(script):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert print_version(script, writer) == (141, "")
    finally:
        os.close(writer)
