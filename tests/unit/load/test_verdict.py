"""Each fault of a run is one sentence."""

from dataclasses import replace

import pytest

from load.daemons import Backlog, Cost, DaemonUsage
from load.verdict import faults, problems, summary


def test_run_that_kept_to_its_profile_has_no_faults(result):
    assert faults(result) == []
    assert summary(result)["faults"] == []


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"missing": 2, "missing_names": ["p1 7"]}, "2 messages were acknowledged and not received, for example p1 7"),  # noqa: E501
        ({"unknown": 1, "unknown_names": ["p1 9"]}, "1 messages were received and never sent, for example p1 9"),  # noqa: E501
        ({"refused": 3}, "3 messages were refused, allowed are 0."),
        ({"duplicates": {"unexplained": 4}}, "4 messages were delivered again though nothing had failed"),
        ({"duplicates": {"timeout": 4}}, "4 messages were delivered again after a timeout"),
        ({"duplicates": {"kill": 40}}, "40 deliveries were duplicates, allowed are 10."),
        ({"acked": 0, "received": {}}, "Nothing was published"),
        ({"received": {"load c": 0}}, "Nothing was consumed"),
        ({"acked": 500}, "500 messages were published of 1,000 that were due: 50%, asked for are 90%"),
    ],
)  # fmt: skip
def test_fault_of_tally_is_sentence(result, changed, sentence):
    assert any(
        sentence in fault for fault in faults(replace(result, outcome=replace(result.outcome, **changed)))
    )


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"errors": {"ProtocolError: E_BAD": 2, "X: y": 1}}, "3 requests failed, allowed are 0; most often: ProtocolError: E_BAD"),  # noqa: E501
        ({"backlog": Backlog(7, 9.0, {"load c": 7}, {}, [])}, "7 messages were still pending at the end, allowed are 0; most in load c: 7."),  # noqa: E501
        ({"backlog": Backlog(7, 9.0, {"load c": 7}, {}, [])}, "The oldest pending message is 9.0 s old, allowed are 5 s."),  # noqa: E501
        ({"drained_s": 9.0}, "Reading what was left took 9.0 s, allowed are 3 s."),
        ({"unreported_workers": ["w7"]}, "Worker w7 ended without its last report"),
        ({"counts": {"deltas that never came": 2}}, "2 reports of workers never came"),
        ({"counts": {"messages that came before they were due": 2}}, "2 messages that came before they were due"),  # noqa: E501
        ({"latency": {"publish": 500, "delivery": 5}}, "99 % of publish times were within"),
        ({"latency": {"publish": 50}}, "No delivery was timed"),
        ({"usages": [DaemonUsage("nsqd 1", [(0, Cost(0, 300)), (10, Cost(9, 90))])]}, "nsqd 1 had 300 MB of memory"),  # noqa: E501
        ({"usages": [DaemonUsage("nsqd 1", [(0, Cost(0, 30)), (10, Cost(9, 90))])]}, "nsqd 1 used 0.90 processors"),  # noqa: E501
    ],
)  # fmt: skip
def test_fault_of_run_is_sentence(result, times, changed, sentence):
    if "latency" in changed:
        changed = {"latency": {name: times(value) for name, value in changed["latency"].items()}}
    assert any(sentence in fault for fault in faults(replace(result, **changed)))


def test_lost_connection_is_error_unless_nsqd_was_killed(result):
    broken = replace(result, errors={"ConnectionResetError: [Errno 104] reset": 3})

    assert "3 requests failed" in faults(broken)[0]
    assert faults(replace(broken, killed=["nsqd-1"])) == []


def test_error_frame_is_error_even_when_nsqd_was_killed(result):
    errors = {"ConnectionResetError: reset": 3, "ProtocolError: E_PUB_FAILED": 1}

    (fault,) = faults(replace(result, errors=errors, killed=["nsqd-1"]))

    assert fault == "1 requests failed, allowed are 0; most often: ProtocolError: E_PUB_FAILED."


# --- problems


def backlog(unreachable=(), sentences=()):
    return Backlog(0, 0.0, {}, dict.fromkeys(unreachable, "refused"), list(sentences))


def test_problem_of_daemon_is_sentence():
    found = problems(backlog(["n:4151"], ["topic load is paused on m:4151"]), [], [], ["m:4150"])

    assert found == [
        "Topic load is paused on m:4151.",
        "nsqd n:4151 was there at the start and does not answer now.",
        "Connections to nsqd m:4150 broke during the run.",
    ]


def test_error_of_full_disk_has_its_meaning():
    (found,) = problems(backlog(), ["ProtocolError: E_PUB_FAILED PUB failed No space left on device"], [], [])

    assert found.startswith("The disk of an nsqd is full (")


def test_cluster_without_problems_has_no_sentence():
    assert problems(backlog(), [], [], []) == []
