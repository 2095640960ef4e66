"""Counts what a campaign really did, because random work proves nothing about what it never did.

Every workload, and every start after a crash, is counted here. Each campaign names the least counts of a
hundred workloads; a run with lower counts fails, whatever it has found.
"""

import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from tests.support.simulated_disk import Call

# In runs with fewer workloads a share of the least counts means nothing.
MIN_WORKLOADS: Final = 60

_SEGMENT: Final = re.compile(r".*\.topic/\d{8,}(\.\d+)?\.log")
_COMPACTED: Final = re.compile(r".*\.topic/\S+\.log\.new(.*)")
_CHECKPOINT: Final = re.compile(r".*\.topic/checkpoint\.\d")


class Deed(StrEnum):
    """Something that a workload did, or a start after it."""

    WORKLOADS = "workloads"
    # --- clients ---
    PUBLISHED = "messages published"
    HEADED = "messages published with headers"
    DEFERRED = "messages deferred when they were published"
    OWN_DUE_TIME = "messages deferred with a due time that no other has"
    FINISHED = "messages finished"
    REQUEUED = "messages requeued immediately"
    PUT_OFF = "messages requeued with a delay"
    OUT_OF_ORDER = "messages requeued before an older one of their consumer"
    TOUCHED = "messages touched"
    TIMED_OUT = "messages that timed out"
    TOPICS_DELETED = "topics deleted"
    TOPICS_EMPTIED = "topics emptied"
    TOPICS_PAUSED = "topics paused"
    TOPICS_REMADE = "topics deleted and made in one moment"
    CHANNELS_MADE = "channels made"
    CHANNELS_DELETED = "channels deleted"
    CHANNELS_EMPTIED = "channels emptied"
    CHANNELS_PAUSED = "channels paused"
    FROM_EARLIEST = "channels made from the earliest message"
    GIVEN = "messages given to a channel made from the earliest"
    SOUGHT = "channels set to another place"
    REPLAYED = "messages pending again on a channel that was set back"
    KEPT = "messages found kept by a policy though they were finished"
    HANDLED = "messages finished, requeued, sent or cancelled by an operator"
    EXPIRED = "messages that expired, by a policy, or could"
    DIED = "messages requeued after their last attempt"
    DROPPED = "oldest messages that a bound dropped, or could"
    REPEATED = "messages published again within the window of their id"
    REFUSED = "messages refused because a channel was full, or the disk nearly"
    RETRIED = "messages requeued immediately that a policy delays"
    SENT_BACK = "dead letters sent back"
    RESTARTS = "clean stops and starts"
    # --- the node and its disk ---
    SEGMENTS_BEGUN = "segments begun"
    SEGMENTS_DROPPED = "segments removed because no backlog has them"
    COMPACTIONS_BEGUN = "compactions begun"
    COMPACTIONS_FINISHED = "compactions finished"
    COMPACTIONS_GIVEN_UP = "compactions given up or failed"
    CHECKPOINTS = "checkpoints written whole"
    CHECKPOINTS_ADDED = "checkpoints added to the one before"
    SYNCS = "syncs of segments"
    FOLDERS_REMOVED = "folders of deleted topics removed"
    # --- faults ---
    CALLS_FAILED = "calls failed"
    SYNCS_FAILED = "syncs of segments failed"
    APPENDS_FAILED = "appends failed"
    FOLDER_SYNCS_FAILED = "syncs of folders failed"
    RENAMES_FAILED = "renames failed"
    ANSWERED_AFTER = "messages answered with OK after a failed call"
    # --- starts after a crash ---
    STATES = "states"
    ENDS_CUT = "torn ends cut off by a start"
    SEGMENTS_LOST = "segments removed by a start"
    WARNINGS = "warnings of a start"
    DEFERRED_CARRIED = "deferred messages that came through a crash"
    SECOND_CRASHES = "crashes while a start repaired"


Ledger = Counter[Deed]


def of_calls(calls: Iterable[Call]) -> Ledger:
    """Return the actions of a running node, by its disk calls."""
    ledger: Ledger = Counter()
    finished = begun = 0
    for call in calls:
        if call.error:
            ledger[Deed.CALLS_FAILED] += 1
            failed = _FAILED.get(call.operation)
            if failed is not None and (call.operation != "sync" or _SEGMENT.fullmatch(call.path)):
                ledger[failed] += 1
            continue
        match call.operation:
            case "create" if _SEGMENT.fullmatch(call.path):
                ledger[Deed.SEGMENTS_BEGUN] += 1
            case "create" if _COMPACTED.fullmatch(call.path):
                begun += 1
            case "rename" if _COMPACTED.fullmatch(call.path):
                finished += 1
            case "rename" if _CHECKPOINT.fullmatch(call.path.rpartition(" ")[2]):
                ledger[Deed.CHECKPOINTS] += 1
            case "write_at" if _CHECKPOINT.fullmatch(call.path):
                ledger[Deed.CHECKPOINTS_ADDED] += 1
            case "remove" if _SEGMENT.fullmatch(call.path):
                ledger[Deed.SEGMENTS_DROPPED] += 1
            case "sync" if _SEGMENT.fullmatch(call.path):
                ledger[Deed.SYNCS] += 1
            case "remove_folder":
                ledger[Deed.FOLDERS_REMOVED] += 1
    ledger[Deed.COMPACTIONS_BEGUN] = begun
    ledger[Deed.COMPACTIONS_FINISHED] = finished
    ledger[Deed.COMPACTIONS_GIVEN_UP] = begun - finished
    # A compaction also removes a segment, the one that it replaces.
    ledger[Deed.SEGMENTS_DROPPED] -= min(finished, ledger[Deed.SEGMENTS_DROPPED])
    return ledger


def of_start(calls: Iterable[Call], warnings: list[str]) -> Ledger:
    """Return the findings of a start, by its disk calls and warnings."""
    ledger: Ledger = Counter({Deed.WARNINGS: len(warnings)})
    for call in calls:
        if call.operation == "truncate":
            ledger[Deed.ENDS_CUT] += 1
        elif call.operation == "remove" and _SEGMENT.fullmatch(call.path):
            ledger[Deed.SEGMENTS_LOST] += 1
    return ledger


def shortfalls(campaign: str, ledger: Ledger) -> list[str]:
    """Return the actions that a run of *campaign* did too rarely; a short run is not judged."""
    workloads = ledger[Deed.WORKLOADS]
    if workloads < MIN_WORKLOADS:
        return []
    return [
        f"{campaign}: {ledger[deed]} {deed} in {workloads} workloads, not {count * workloads // 100}"
        for deed, count in LEAST.get(campaign, {}).items()
        if ledger[deed] < count * workloads // 100
    ]


def written(ledger: Ledger) -> str:
    """Return the ledger as lines of text."""
    return "\n".join(f"  {ledger[deed]:>9,} {deed}" for deed in Deed if ledger[deed])


_FAILED: Final = {
    "sync": Deed.SYNCS_FAILED,
    "append": Deed.APPENDS_FAILED,
    "sync_folder": Deed.FOLDER_SYNCS_FAILED,
    "rename": Deed.RENAMES_FAILED,
}

# The least counts of a hundred workloads in every campaign: about half of the average.
_WORK: Final = {
    Deed.PUBLISHED: 3000,
    Deed.HEADED: 600,
    Deed.DEFERRED: 700,
    Deed.OWN_DUE_TIME: 400,
    Deed.FINISHED: 1500,
    Deed.REQUEUED: 90,
    Deed.PUT_OFF: 120,
    Deed.OUT_OF_ORDER: 60,
    Deed.TOUCHED: 40,
    Deed.TIMED_OUT: 300,
    Deed.TOPICS_DELETED: 40,
    Deed.TOPICS_EMPTIED: 6,
    Deed.TOPICS_PAUSED: 4,
    Deed.TOPICS_REMADE: 30,
    Deed.CHANNELS_MADE: 40,
    Deed.CHANNELS_DELETED: 15,
    Deed.CHANNELS_EMPTIED: 2,
    Deed.CHANNELS_PAUSED: 2,
    Deed.FROM_EARLIEST: 15,
    Deed.GIVEN: 100,
    Deed.SOUGHT: 20,
    Deed.REPLAYED: 60,
    Deed.KEPT: 4,
    Deed.HANDLED: 15,
    Deed.REPEATED: 30,
    Deed.REFUSED: 40,
    Deed.RETRIED: 4,
    Deed.RESTARTS: 40,
    Deed.SEGMENTS_BEGUN: 400,
    Deed.SEGMENTS_DROPPED: 40,
    Deed.COMPACTIONS_BEGUN: 35,
    Deed.COMPACTIONS_FINISHED: 30,
    Deed.COMPACTIONS_GIVEN_UP: 1,
    Deed.CHECKPOINTS: 300,
    Deed.CHECKPOINTS_ADDED: 300,
    Deed.SYNCS: 800,
    Deed.FOLDERS_REMOVED: 25,
}
# Rare deeds, which may not happen in the few seeds whose workloads some campaigns repeat many times.
_RARE: Final = {
    Deed.KEPT,
    Deed.REPEATED,
    Deed.REFUSED,
    Deed.RETRIED,
    Deed.TOPICS_EMPTIED,
    Deed.TOPICS_PAUSED,
    Deed.CHANNELS_EMPTIED,
    Deed.CHANNELS_PAUSED,
}
_REPEATED: Final = {deed: count for deed, count in _WORK.items() if deed not in _RARE}
_FAILURES: Final = {
    Deed.CALLS_FAILED: 100,
    Deed.SYNCS_FAILED: 20,
    Deed.APPENDS_FAILED: 20,
    Deed.ANSWERED_AFTER: 500,
}
_STARTS: Final = {Deed.STATES: 2000, Deed.DEFERRED_CARRIED: 1000}
LEAST: Final = {
    "power-cut": _WORK | _STARTS | {Deed.ENDS_CUT: 500, Deed.SEGMENTS_LOST: 100, Deed.WARNINGS: 500},
    "kill": _WORK | _STARTS,
    # The workload of a seed runs once for each failing call.
    "failed-call": _REPEATED | _STARTS | _FAILURES | {Deed.FOLDER_SYNCS_FAILED: 10, Deed.RENAMES_FAILED: 5},
    "second-crash": _WORK | _STARTS | {Deed.SECOND_CRASHES: 2000, Deed.ENDS_CUT: 100},
    "calls": _REPEATED | _FAILURES,
}
