"""The actions and output of the ``nsqd-data`` commands, with their exit codes."""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from nsqcore.process.output import ReaderEnded, Unwritable, write_message, write_text
from nsqd.data import dump, identity, repair, summary, verify
from nsqd.data.decommission import RescueOptions, rescue
from nsqd.data.opened import DataPathRefused, OpenedDataPath, is_in_use
from nsqd.data.rehearsal import Rehearsal
from nsqd.log.disk import Disk
from nsqd.storage.lock import DataPathLocked, lock_data_path

PROGRAM: Final = "nsqd-data"
WELL, DAMAGED, FAILED = 0, 1, 2


def run_command(given: argparse.Namespace) -> int:
    """Run the command that the flags name; returns the exit code."""
    try:
        return _run(given)
    except ReaderEnded:
        return FAILED
    except (DataPathRefused, DataPathLocked, Unwritable) as error:
        _print_line(str(error))
        return FAILED


def _run(given: argparse.Namespace) -> int:
    if given.command == "repair" and given.write:
        return _repair_for_good(given)
    if given.command in _ON_A_STOPPED_PATH:
        return _ON_A_STOPPED_PATH[given.command](given)
    if is_in_use(given.data_path):
        _print_line(f"an nsqd runs on {given.data_path}: what it is writing may look unfinished")
    with tempfile.TemporaryDirectory(prefix=f"{PROGRAM}-") as scratch:
        disk = Rehearsal(given.data_path, Path(scratch))
        with closing(OpenedDataPath(given.data_path, disk)) as opened:
            code = _read_only(given, opened, disk)
            write_text("")  # flushes what was printed
            return code


def _read_only(given: argparse.Namespace, opened: OpenedDataPath, disk: Rehearsal) -> int:
    if given.command == "verify":
        return _print_found(verify.findings(opened, given.topic))
    if given.command == "repair":
        return _print_repair(opened, disk, given.topic)
    if given.command == "summary":
        for one in summary.summaries(opened, given.topic):
            _print(json.dumps(one) if given.json else "\n".join(summary.text(one)))
        return WELL
    return _dump(opened, given)


def _dump(opened: OpenedDataPath, given: argparse.Namespace) -> int:
    start, end = (given.start, given.end) if given.id is None else (given.id, given.id + 1)
    wanted = dump.DumpFilter(start, end, given.from_time, given.to_time, given.channel, given.pending)
    lost: list[str] = []
    for message in dump.messages(opened, given.topic, wanted, lost.append):
        _print(json.dumps(message, ensure_ascii=False))
    for sentence in lost:
        _print_line(sentence)
    return DAMAGED if lost else WELL


def _print_repair(opened: OpenedDataPath, disk: Rehearsal, topic: str) -> int:
    found = _print_found(repair.repair(opened, topic))
    for change in disk.changes:
        write_text(f"would {change}\n")
    return found


def _repair_for_good(given: argparse.Namespace) -> int:
    """Print the planned changes, then make them, both under the lock that an nsqd takes."""
    lock = lock_data_path(given.data_path)
    try:
        with tempfile.TemporaryDirectory(prefix=f"{PROGRAM}-") as scratch:
            rehearsal = Rehearsal(given.data_path, Path(scratch))
            with closing(OpenedDataPath(given.data_path, rehearsal)) as opened:
                found = _print_repair(opened, rehearsal, given.topic)
        if rehearsal.changes:
            with closing(OpenedDataPath(given.data_path, Disk())) as opened:
                for _ in repair.repair(opened, given.topic):
                    pass
            write_message("done", sys.stdout)
        return found
    finally:
        Disk().close(lock)


def _decommission(given: argparse.Namespace) -> int:
    flags = [f"--cluster-secret-file={given.cluster_secret_file}"]
    flags += [
        f"--replica={one}"
        for one in dict.fromkeys((*(given.replica or ()), *([given.to] if given.to else [])))
    ]
    flags += [f"--lookupd-tcp-address={one}" for one in given.lookupd_tcp_address or ()]
    flags += ["--replication-tls"] * given.replication_tls
    flags += [f"--tls-root-ca-file={given.tls_root_ca_file}"] * bool(given.tls_root_ca_file)
    options = RescueOptions(given.data_path, flags, given.to or "", given.fewer_copies, given.timeout)
    return WELL if rescue(options, _print_line) else DAMAGED


def _forget_node(given: argparse.Namespace) -> int:
    known = identity.forget_node(given.data_path, given.identity)
    if not known:
        raise DataPathRefused(f"no log of {given.data_path} knows the node {given.identity.hex()}")
    write_text("".join(f"forgotten: {one}\n" for one in known))
    return WELL


def _new_identity(given: argparse.Namespace) -> int:
    identity.new_identity(given.data_path)
    write_text("the next start has a new identity\n")
    return WELL


_ON_A_STOPPED_PATH: Final = {
    "decommission": _decommission,
    "forget-node": _forget_node,
    "new-identity": _new_identity,
}


def _print_found(sentences: Iterable[str]) -> int:
    found = WELL
    for sentence in sentences:
        write_text(f"{sentence}\n")
        found = DAMAGED
    return found


def _print(line: str) -> None:
    write_text(f"{line}\n", flush=False)


def _print_line(sentence: str) -> None:
    write_message(f"{PROGRAM}: {sentence}")
