#!/usr/bin/env python3
"""Write deploy/image/requirements.txt: what is in the image, to the version and the checksum of each file.

It needs uv. --check only looks whether every requirement of pyproject.toml is among what is locked, and asks
nobody.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
LOCK = PROJECT / "deploy" / "image" / "requirements.txt"
HEAD = "# Written by scripts/image_lock.py; the image has these files and no others.\n"

# Built from this repository, for the image as for everybody.
OWN = ("nsqclient", "nsq-cluster")


def wanted() -> list[str]:
    """What pyproject.toml asks for, for the image: the dependencies and the extra k8s."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    client = tomllib.loads((PROJECT / "client" / "pyproject.toml").read_text())["project"]
    found = [*project["dependencies"], *client["dependencies"], *project["optional-dependencies"]["k8s"]]
    return [each for each in found if re.split(r"[\[<>=;! ]", each)[0] not in OWN]


def locked(text: str) -> dict[str, str]:
    """Return the version of every package of the lock."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^ \\;]+)", text, re.MULTILINE))


def main() -> int:
    if "--check" in sys.argv[1:]:
        there = {name.replace("_", "-").lower() for name in locked(LOCK.read_text())}
        names = {re.split(r"[\[<>=;! ]", each)[0].replace("_", "-").lower() for each in wanted()}
        missing = sorted(names - there)
        if missing:
            print(f"not locked: {', '.join(missing)}; run scripts/image_lock.py", file=sys.stderr)
        return int(bool(missing))
    # The oldest Python that is supported, and every platform: the image is built for several.
    compile_them = ["uv", "pip", "compile", "--universal", "--python-version=3.11", "--generate-hashes"]
    plain = ["--no-annotate", "--no-header", "--no-emit-index-url", "--no-emit-find-links", "--quiet", "-"]
    done = subprocess.run(
        [*compile_them, *plain], input="\n".join(wanted()), capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return 1
    LOCK.write_text(HEAD + done.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
