"""A node killed under load: no acknowledged message is missing, and the kill explains all duplicates."""

import pytest

from tests.integration.load.test_runs import run_profile

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

STEADY = """
seconds = 8
[cluster]
nsqd = 2
[[publishers]]
kind = "PUB"
users = 4
rate = 400
[[publishers]]
kind = "MPUB"
users = 2
rate = 1000
batch = 50
[[consumers]]
users = 2
"""


def test_a_nsqd_that_is_killed_under_load_loses_nothing(tmp_path):
    code, text, told = run_profile(tmp_path, STEADY, "--start", "--kill", "--workers=2")

    assert code == 0, text
    assert told["killed"] == ["nsqd-1"]
    assert (told["missing"], told["unknown"], told["owed_at_end"]) == (0, 0, 0)
    assert told["acknowledged"] > 1000
    # A client noticed the kill; otherwise the run shows nothing.
    assert any("Connection" in error for error in told["errors"])
    assert told["duplicates"].keys() <= {"kill"}
