"""The back-off machine."""

import pytest

from nsqclient._backoff import Backoff, Phase

RUNNING, STOPPED = Phase.RUNNING, Phase.STOPPED

# rule -> (settings; events: failure, success, end of the wait; seconds to stop; level; phase)
RULES = {
    "first failure stops for two multipliers": ({}, "f", [2], 1, STOPPED),
    "failed trial doubles stop": ({}, "fwfwfwfwf", [2, 4, 8, 16, 32], 5, STOPPED),
    # The next level would be 128.
    "stop never grows above longest": ({}, "f" + "wf" * 8, [2, 4, 8, 16, 32, 64, 64, 64, 64], 6, STOPPED),
    "multiplier above longest stop is cut to it": ({"multiplier": 300}, "f", [120], 1, STOPPED),
    "outcomes of messages taken before stop do not count": ({}, "ffs", [2, None, None], 1, STOPPED),
    "successful trial at level one runs again": ({}, "fws", [2, None], 0, RUNNING),
    "recovery takes one successful trial per level": ({}, "fwfws", [2, 4, 2], 1, STOPPED),
    "success while running changes nothing": ({}, "s", [None], 0, RUNNING),
    "full jitter stops for chance of time": ({"full_jitter": True}, "f", [0.5], 1, STOPPED),
    "no longest stop switches it off": ({"max_duration": 0}, "f", [None], 0, RUNNING),
    "no multiplier switches it off": ({"multiplier": 0}, "f", [None], 0, RUNNING),
}


@pytest.mark.parametrize("rule", RULES)
def test_backoff_follows_rule(rule):
    settings, events, stops, level, phase = RULES[rule]
    backoff = Backoff(**settings)
    outcomes = []
    for event in events:
        if event == "w":
            backoff.waited()
        else:
            outcomes.append((backoff.failed if event == "f" else backoff.succeeded)(0.25))

    assert (outcomes, backoff.level, backoff.phase) == (stops, level, phase)
