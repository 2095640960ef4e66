"""``nsq-spark``: runs the jobs by name."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

PROGRAM: Final = "nsq-spark"
JOBS: Final = {
    "archive": "a topic to Parquet files by date and hour, every message once",
    "stats": "the history of /stats, to a table",
    "replay": "Parquet files to a topic, at a pace",
    "package": "one file for spark-submit --py-files",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job that the first word names; return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in {"-h", "--help"}:
        print(f"usage: {PROGRAM} JOB FLAGS, with --help for the flags of a job\n")
        for name, about in JOBS.items():
            print(f"  {name:10}{about}")
        return 0 if words else 2
    if words[0] not in JOBS:
        print(f"{PROGRAM}: there is no job {words[0]!r}; there are: {', '.join(JOBS)}", file=sys.stderr)
        return 2
    # Only the requested job is loaded.
    return int(import_module(f"pyspark_nsq.jobs.{words[0]}").main(words[1:]))


if __name__ == "__main__":
    raise SystemExit(main())
