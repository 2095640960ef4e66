"""The examples of the client's page run unchanged."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from nsqclient import Config

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs/client.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

# The lines that each example prints, in any order.
PRINTS = [
    {"hello world", "one", "two"},
    {"hello world"},
    {"10000 confirmed"},
    {"kept for later"},
    {"100 done"},
]


@pytest.mark.parametrize(("example", "lines"), list(zip(EXAMPLES, PRINTS, strict=True)))
def test_example_prints_what_it_promises(cluster, example, lines):
    lookupd, nsqd = cluster.nsqlookupd(), cluster.nsqd()
    example = example.replace("127.0.0.1:4150", nsqd.tcp_address)
    example = example.replace("127.0.0.1:4161", lookupd.http_address)

    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert set(ended.stdout.splitlines()) == lines, ended.stderr
    assert ended.returncode == 0


def test_table_of_settings_is_that_of_code():
    table = PAGE.partition("## Settings")[2].partition("## Errors")[0]
    names = " ".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))

    assert set(re.findall(r"`(\w+)`", names)) == {one.name for one in fields(Config)}
