"""The Python that Spark starts for the source, and the modules' path of that Python."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from pyspark_nsq.unpacked import quick_python, unpacked

HOME = Path(pyspark.__file__).parent
ZIPS = [str(HOME / "python" / "lib" / "pyspark.zip"), *map(str, HOME.glob("python/lib/py4j-*-src.zip"))]
JAR = next(map(str, HOME.glob("jars/spark-core_*.jar")))
LOOK = "import sys; print(*(one for one in sys.path if one in sys.argv))"


def path_of(python, *entries):
    """Which of these entries are on the path of this Python when Spark starts it with them."""
    given = {"SPARK_HOME": str(HOME), "PYTHONPATH": os.pathsep.join(entries)}
    found = subprocess.run(
        [python, "-c", LOOK, *entries], env=os.environ | given, capture_output=True, text=True, check=True
    )
    return found.stdout.split()


def test_zips_of_spark_are_left_out_and_nothing_else_is(tmp_path):
    python = quick_python(sys.executable, "local[2]", str(tmp_path))

    assert python != sys.executable
    assert path_of(sys.executable, *ZIPS, JAR, "/given/py-files.zip") == [*ZIPS, JAR, "/given/py-files.zip"]
    assert path_of(python, *ZIPS, JAR, "/given/py-files.zip") == ["/given/py-files.zip"]
    # A path in another order than Spark's is left as it is.
    assert path_of(python, "/given/mine.zip", *ZIPS) == ["/given/mine.zip", *ZIPS]
    # A second call returns the same Python.
    assert quick_python(sys.executable, "local[2]", str(tmp_path)) == python


@pytest.mark.parametrize("master", ["spark://master:7077", "k8s://here", "yarn"])
def test_on_cluster_every_node_has_python_of_its_own(tmp_path, master):
    assert quick_python(sys.executable, master, str(tmp_path)) == sys.executable


def test_another_python_is_left_as_it_is(tmp_path):
    other = tmp_path / "python3"
    other.symlink_to(sys.executable)

    assert quick_python(str(other), "local[2]", str(tmp_path)) == str(other)
    assert quick_python("no-such-python", "local[2]", str(tmp_path)) == "no-such-python"


def test_another_spark_is_left_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))

    assert quick_python(sys.executable, "local[2]", str(tmp_path)) == sys.executable


def test_where_nothing_may_be_run_or_written_it_does_without(tmp_path):
    script = tmp_path / "nsq-python"
    script.write_text("")
    script.chmod(0o600)

    assert quick_python(sys.executable, "local[2]", str(tmp_path)) == sys.executable
    assert quick_python(sys.executable, "local[2]", str(tmp_path / "away")) == sys.executable
    assert quick_python(sys.executable, "local[2]", None) == sys.executable


def test_only_what_is_registered_meanwhile_has_it(tmp_path):
    context = SimpleNamespace(pythonExec=sys.executable, master="local[2]", _temp_dir=str(tmp_path))
    with pytest.raises(KeyError), unpacked(context):
        assert context.pythonExec == str(tmp_path / "nsq-python")
        raise KeyError

    assert context.pythonExec == sys.executable
