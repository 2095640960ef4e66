"""Every module compiles and can be imported without a warning."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Without `load` and `pyspark_nsq`, which need packages that the newest Python may not have yet.
PACKAGES = ("nsqclient", "nsqcore", "nsqd", "nsqlookupd", "nsqadmin", "nsqtools", "devcluster")
FOLDERS = ("bench", "client", "devcluster", "load", "nsq*", "pipelines", "tests")
IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_are_imported_without_warning(package):
    filters = ("-Werror::DeprecationWarning", "-Werror::SyntaxWarning")
    done = subprocess.run(
        [sys.executable, *filters, "-c", IMPORT_ALL, package],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_files_compile_without_warning():
    files = [path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.py")]

    with warnings.catch_warnings(action="error"):
        for path in files:
            compile(path.read_text(encoding="utf-8"), str(path), "exec")

    assert len(files) > 500
