"""Sentences that explain why a run went wrong."""

from load.problems import problems
from load.seen import Remaining


def owed(silent=(), said=()):
    return Remaining(0, 0.0, {}, dict.fromkeys(silent, "refused"), list(said))


def test_who_is_gone_and_what_is_paused_is_named():
    found = problems(owed(["n:4151"], ["topic load is paused on m:4151"]), [], [], ["m:4150"])

    assert found == [
        "Topic load is paused on m:4151.",
        "nsqd n:4151 was there at the start and does not answer now.",
        "Connections to nsqd m:4150 broke during the run.",
    ]


def test_a_full_disk_is_called_by_its_name():
    (found,) = problems(owed(), ["ProtocolError: E_PUB_FAILED PUB failed No space left on device"], [], [])

    assert found.startswith("The disk of an nsqd is full (")


def test_a_quiet_cluster_needs_no_words():
    assert problems(owed(), [], [], []) == []
