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


def test_zips_of_spark_alone_are_left_out(tmp_path):
    python = quick_python(sys.executable, "local[2]", str(tmp_path))

    assert python != sys.executable
    assert path_of(sys.executable, *ZIPS, JAR, "/given/py-files.zip") == [*ZIPS, JAR, "/given/py-files.zip"]
    assert path_of(python, *ZIPS, JAR, "/given/py-files.zip") == ["/given/py-files.zip"]
    # A path in another order than Spark's is left as it is.
    assert path_of(python, "/given/mine.zip", *ZIPS) == ["/given/mine.zip", *ZIPS]
    # A second call returns the same Python.
    assert quick_python(sys.executable, "local[2]", str(tmp_path)) == python


def test_python_is_kept_where_another_would_be_unsafe(tmp_path, monkeypatch):
    def kept(python=sys.executable, master="local[2]", folder=str(tmp_path)):
        return quick_python(python, master, folder) == python

    # Each node of a cluster has a Python of its own.
    assert [kept(master=master) for master in ("spark://master:7077", "k8s://here", "yarn")] == [True] * 3
    other = tmp_path / "python3"
    other.symlink_to(sys.executable)
    assert kept(str(other))
    assert kept("no-such-python")
    # Nothing may be run or written.
    script = tmp_path / "nsq-python"
    script.write_text("")
    script.chmod(0o600)
    assert kept()
    assert kept(folder=str(tmp_path / "away"))
    assert kept(folder=None)
    script.unlink()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert kept()


def test_sources_registered_in_block_have_quick_python(tmp_path):
    context = SimpleNamespace(pythonExec=sys.executable, master="local[2]", _temp_dir=str(tmp_path))
    with pytest.raises(KeyError), unpacked(context):
        assert context.pythonExec == str(tmp_path / "nsq-python")
        raise KeyError

    assert context.pythonExec == sys.executable
