"""One file for --py-files: it has everything that executors need, except numpy and pyarrow."""

import subprocess
import sys

from pyspark_nsq.jobs.main import main

# The program can import Spark, numpy and pyarrow, but neither the project nor its installed packages.
USE = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
sys.path = [path for path in sys.path if "site-packages" in path or "/lib/python3" in path]
sys.path.insert(0, sys.argv[1])
from pyspark_nsq import DefaultSource
import nsqclient
print(DefaultSource.__module__, DefaultSource.name(), nsqclient.__file__.startswith(sys.argv[1]))

class Context:
    environment = {"PYTHONPATH": "/elsewhere"}

from pyspark_nsq import _have_planner_find
_have_planner_find(Context)
_have_planner_find(Context)
print(Context.environment["PYTHONPATH"] == f"{sys.argv[1]}:/elsewhere")
assert not {"nsqcore", "aiohttp", "msgspec", "pandas"} & set(sys.modules), sorted(sys.modules)
"""


def test_file_is_enough_beside_spark_numpy_and_pyarrow(tmp_path, capsys):
    file = tmp_path / "nsq-spark.zip"
    assert main(["package", str(file)]) == 0
    assert "modules" in capsys.readouterr().out
    found = subprocess.run(
        [sys.executable, "-I", "-c", USE, str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    # The last True: the process that plans a stream gets the path of the file.
    assert found.stdout == "pyspark_nsq.source.source nsq True\nTrue\n", found.stderr
