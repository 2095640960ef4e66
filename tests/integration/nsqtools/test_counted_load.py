"""The load that counts every message, as scripts/kube-test and the chart nsq-load run it."""

import json
import signal
import subprocess
import sys

import pytest

from bench.ports import free_port
from tests.support.waiting import wait_until


def start(lookup, *flags):
    return subprocess.Popen(
        [sys.executable, "-m", "nsqtools.counted_load", f"--lookupd-http-address={lookup}", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def statistics(output):
    return [json.loads(line) for line in output.splitlines()]


@pytest.fixture
def lookup(cluster):
    return cluster.nsqlookupd()


@pytest.fixture
def nsqd(lookup, cluster):
    return cluster.nsqd()


def test_counted_load_counts_messages_until_sigterm(lookup, nsqd):
    load = start(lookup.http_address, "--rate=200")
    wait_until(lambda: nsqd.get("/stats?format=json")["topics"] != [], "it publishes")
    wait_until(lambda: nsqd.get("/stats?format=json")["topics"][0]["message_count"] > 900, "for some seconds")
    load.send_signal(signal.SIGTERM)
    output, errors = load.communicate(timeout=30)

    assert (load.returncode, errors) == (0, "")
    *_, last = statistics(output)
    assert last["final"] is True
    assert last["confirmed"] == last["received"] > 900
    assert (last["failed"], last["missing"], last["wrong_lookups"]) == (0, 0, 0)
    assert last["lookups"] > 0


def test_answer_that_names_too_few_brokers_is_wrong(lookup, nsqd):
    output, _ = start(lookup.http_address, "--rate=50", "--producers=2", "--seconds=4").communicate(
        timeout=30
    )

    last = statistics(output)[-1]
    assert last["wrong_lookups"] == last["lookups"] > 0


def test_publishes_that_fail_are_counted_and_end_it_with_1():
    load = start(f"127.0.0.1:{free_port()}", "--rate=20", "--seconds=1")
    output, _ = load.communicate(timeout=60)

    last = statistics(output)[-1]
    assert load.returncode == 1
    assert (last["confirmed"], last["failed"] > 10) == (0, True)
    assert "nsqlookupd" in last["last_failure"]
