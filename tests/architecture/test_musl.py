"""Every required package has wheels for musl, and nsqd runs without google-re2, which has none."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Without google-re2: everything that uses patterns can be imported, and a tool judges one pattern.
WITHOUT_RE2 = """
import sys
sys.modules["re2"] = None
import nsqd.cli, nsqd.policies.policy, nsqd.protocol.auth
from nsqtools.nsq_to_file.options import ToFileOptions
print(ToFileOptions(topic_pattern=sys.argv[1], lookupd_http_address=("a:1",)).problem() or "")
"""


def judged(pattern):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RE2, pattern], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_simple_patterns_work_without_re2_and_others_name_it():
    assert judged(r"^logs\.[a-z]+$") == ""
    assert "pip install nsq-cluster[re2]" in judged("(?i)logs")


@pytest.mark.slow
def test_requirements_have_wheels_for_musl(tmp_path):
    wanted = [one.partition(";")[0] for one in PROJECT["dependencies"] if one != "nsqclient"]
    here = ("-m", "pip", "install", "--dry-run", "--quiet", f"--target={tmp_path}")
    there = ("--python-version=3.13", "--platform=musllinux_1_2_x86_64", "--only-binary=:all:")
    done = subprocess.run(
        [sys.executable, *here, *there, *wanted], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
