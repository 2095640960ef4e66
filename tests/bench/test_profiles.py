"""The table of all profiles."""

from bench.profiles import HEADER, line

TOLD = {
    "seconds": 30.2,
    "acknowledged": 12_084,
    "received": 24_168,
    "missing": 0,
    "duplicates": {"kill": 5, "requeue": 1_200},
    "latency_ms": {"publish": {"p99": 3.25}, "delivery": {"p50": 0.4, "p99": 120.0}},
    "daemons": {
        "nsqd a:1": {"cores": 0.11, "memory_mb": 60.4},
        "nsqd b:1": {"cores": 0.3, "memory_mb": 58.0},
        "nsqlookupd c:1": {"cores": 0.0, "memory_mb": 44.0},
    },
    "faults": [],
}


def test_a_run_is_a_line_with_as_many_cells_as_the_head_and_the_dearest_nsqd():
    found = line("steady", TOLD, 1.44)

    assert found == (
        "| steady | 30 | 12,084 | 24,168 | 0 | 5 by kill, 1,200 by requeue"
        " | 3.2, 0.4 / 120 | 0.30, 60 | 44 | 1.4 | reached |"
    )
    assert {text.count("|") for text in (found, *HEADER.splitlines())} == {12}


def test_what_was_not_timed_has_a_dash_and_what_was_missed_is_counted():
    found = line("x", TOLD | {"latency_ms": {}, "faults": ["a", "b"]}, 0.0)

    assert "| -, - / - |" in found
    assert found.endswith("| 2 missed |")
