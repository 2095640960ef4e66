"""The README's examples work unchanged."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
README = (PROJECT / "README.md").read_text()


def test_client_example_prints_its_published_messages(cluster):
    lookupd, nsqd = cluster.nsqlookupd(), cluster.nsqd()
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    example = example.replace("127.0.0.1:4150", nsqd.tcp_address).replace(
        "127.0.0.1:4161", lookupd.http_address
    )

    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=PROJECT,
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (ended.stdout, ended.stderr, ended.returncode) == (b"b'hello world'\n", b"", 0)


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)#]+)", README))
def test_links_lead_somewhere(target):
    assert (PROJECT / target).exists()
