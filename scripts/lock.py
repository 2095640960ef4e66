#!/usr/bin/env python3
"""Pin every installed package: deploy/image/requirements.txt for the image, and constraints.txt for CI.

The image gets exactly the files with those checksums. CI, ./run and developers get the versions of
constraints.txt if the package index has them; users get versions in the ranges of pyproject.toml.
It needs uv. --check only tests that every requirement is locked to a version in its range.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parent.parent
HEAD: Final = "# Written by scripts/lock.py; {}.\n"

# Built from this repository, also for the image, so these distributions are not locked.
OWN: Final = {
    name: tomllib.loads((PROJECT / folder / "pyproject.toml").read_text())["project"]
    for name, folder in (("nsq-cluster", "."), ("nsqclient", "client"), ("pyspark-nsq", "pipelines"))
}
# file -> its first line, the distributions it is for, whether it has checksums
LOCKS: Final = {
    "deploy/image/requirements.txt": (
        "the image has these files and no others",
        ["nsq-cluster[k8s,re2]", "nsqclient"],
        True,
    ),
    "constraints.txt": ("CI and scripts/install take these versions", ["nsq-cluster[dev]"], False),
}


def wanted(own: str) -> Iterator[str]:
    """Yield what one of our distributions requires of others, including its extras and our other packages."""
    name, extras = re.match(r"([\w-]+)(?:\[([\w,-]+)\])?", own).groups()  # type: ignore[union-attr]
    project = OWN[name]
    further = [project["optional-dependencies"][extra] for extra in (extras or "").split(",") if extra]
    for each in (*project["dependencies"], *(one for some in further for one in some)):
        if name_of(each) in OWN:
            yield from wanted(each)
        else:
            yield each


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=;! ~]", requirement)[0].replace("_", "-").lower()


def locked(text: str) -> dict[str, set[str]]:
    """Return the versions of every package of a lock; there may be one for each Python."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ \\;\n]+)", text, re.MULTILINE):
        found.setdefault(name_of(name), set()).add(version)
    return found


def unfit(file: str, owns: list[str]) -> list[str]:
    """Return the requirements for which the lock has no version, or one outside their range."""
    from packaging.requirements import Requirement

    there = locked((PROJECT / file).read_text())
    requirements = {each for own in owns for each in wanted(own)}
    return [
        each
        for each in sorted(requirements)
        if not (found := there.get(name_of(each)))
        or not all(Requirement(each).specifier.contains(version, prereleases=True) for version in found)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="only test that every requirement is locked")
    check = parser.parse_args().check
    bad = False
    for file, (what, owns, with_checksums) in LOCKS.items():
        if check:
            if missing := unfit(file, owns):
                print(f"{file} does not fit {', '.join(missing)}; run scripts/lock.py", file=sys.stderr)
                bad = True
            continue
        requirements = sorted({each for own in owns for each in wanted(own)})
        # For the oldest supported Python and all newer ones, and for every platform.
        compile_them = ["uv", "pip", "compile", "--universal", "--python-version=3.11"]
        plain = [
            "--no-annotate",
            "--no-header",
            "--no-emit-index-url",
            "--no-emit-find-links",
            "--quiet",
            "-",
        ]
        checksums = ["--generate-hashes"] if with_checksums else []
        done = subprocess.run(
            [*compile_them, *checksums, *plain],
            input="\n".join(requirements),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return 1
        (PROJECT / file).write_text(HEAD.format(what) + done.stdout)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
