"""The tools print what docs/tools.md shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tools import unfinished
from tests.support.waiting import wait_until

PROJECT = Path(__file__).parents[3]
PAGE = (PROJECT / "docs" / "tools.md").read_text()

BLOCKS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
CHANNELS = {
    "greetings": ("readers", "nsq_to_file", "nsq_to_http", "nsq_to_nsq"),
    "letters": ("readers",),
    "handled": ("readers",),
    "by-http": ("readers",),
    "copies": ("readers",),
}


def commands(block: str) -> list[tuple[str, str]]:
    """Each command with its output."""
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)


def test_tools_have_examples():
    tools = {
        "nsq_channel",
        "nsq_peek",
        "nsq_stat",
        "nsq_tail",
        "to_nsq",
        "nsq_to_file",
        "nsq_to_http",
        "nsq_to_nsq",
    }

    assert tools <= set(re.findall(r"\b\w+\b", " ".join(BLOCKS)))


@pytest.mark.parametrize("kind", ["tcp", "http"])
def test_page_uses_addresses_of_local_nsqd(kind):
    assert {"tcp": "127.0.0.1:4150", "http": "127.0.0.1:4151"}[kind] in PAGE


def test_examples_print_the_output_of_the_page(nsqd, tmp_path):
    for topic, channels in CHANNELS.items():
        nsqd.post(f"/topic/create?topic={topic}")
        for channel in channels:
            nsqd.post(f"/channel/create?topic={topic}&channel={channel}")
    shown = [pair for block in BLOCKS for pair in commands(block)]

    for command, named in shown:
        printed = named.replace("127.0.0.1:4151", nsqd.http_address)
        # Messages that are forwarded several at a time come in any order.
        assert sorted(run_example(nsqd, command, tmp_path).splitlines()) == sorted(printed.splitlines()), (
            command
        )


def run_example(nsqd, command: str, folder: Path) -> str:
    """Run a line of the page in a folder; return what it printed."""
    local = command.replace("127.0.0.1:4150", nsqd.tcp_address).replace("127.0.0.1:4151", nsqd.http_address)
    # Commands that would run forever have a time limit on the page; here they get the time that they need.
    endless = re.fullmatch(r"timeout \d+ ((nsq_to_\w+) -topic=(\S+) .*) \|\| true", local)
    with subprocess.Popen(
        ["bash", "-c", f"exec {endless[1]}" if endless else local],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    ) as process:
        if endless:
            wait_until(lambda: unfinished(nsqd, endless[3], endless[2]) == 0, f"{endless[2]} is done", 30)
            process.terminate()
        printed, said = process.communicate(timeout=60)
    assert process.returncode == 0, f"{command}\nended with {process.returncode}:\n{said.decode()}"
    return printed.decode()
