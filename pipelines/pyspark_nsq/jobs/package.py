"""``nsq-spark package``: this package and its dependencies as one file, for ``--py-files``.

nsq-spark package nsq-spark.zip
spark-submit --py-files nsq-spark.zip job.py
"""

import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pyspark_nsq.jobs.arguments import JobArguments

PROGRAM: Final = "nsq-spark package"
# numpy and pyarrow are compiled, so executors must have them already; Spark's own Python also needs them.
PACKAGES: Final = ("pyspark_nsq", "nsqclient")


def main(argv: Sequence[str]) -> int:
    """Write the file; return the exit code."""
    parser = JobArguments(
        prog=PROGRAM,
        description="Write one file for --py-files; executors need numpy and pyarrow as well.",
    )
    parser.add_argument("file", metavar="FILE.zip")
    file = Path(parser.parse_args(argv).file)
    print(f"{file}: {write(file)} modules")
    return 0


def write(file: Path) -> int:
    """Write the modules; return their number. Raises ModuleNotFoundError."""
    count = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            found = find_spec(package)
            if found is None or found.origin is None:
                raise ModuleNotFoundError(package)
            folder = Path(found.origin).parent
            for path in sorted(folder.rglob("*.py")):
                archive.write(path, Path(package) / path.relative_to(folder))
                count += 1
    return count
