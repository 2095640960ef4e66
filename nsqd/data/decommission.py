"""``nsqd-data decommission``: transfers all logs of a data path without an nsqd, such as an orphaned volume.

It starts an nsqd there, on ports of the loopback interface, and has it decommissioned. It may be interrupted
at any moment and repeated.
"""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsqclient.wire.durations import SECOND
from nsqcore.process.output import write_message
from nsqcore.process.tied import tie_to_parent
from nsqd.data.opened import DataPathRefused
from nsqd.decommission import DecommissionOptions, decommission
from nsqd.drain import DrainError
from nsqd.log.disk import Disk
from nsqd.replication.local_copy import node_id_of
from nsqd.storage.lock import lock_data_path
from nsqd.storage.topic_log import FOLDER_SUFFIX

_LISTENS: Final = re.compile(r"HTTP: listening on (\S+)")
_LOGGED: Final = re.compile(r"^\[nsqd\] \S+ \S+ (WARNING|ERROR|FATAL): ")
_STOP_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class RescueOptions:
    """The flags; *nsqd* has those that are passed on. *to* is empty for the best replica."""

    data_path: Path
    nsqd: Sequence[str]
    to: str
    fewer_copies: bool
    timeout_ns: int


def rescue(options: RescueOptions, say: Callable[[str], None]) -> bool:
    """Whether nothing remains; *say* gets problems. Raises DataPathRefused, and DataPathLocked."""
    Disk().close(lock_data_path(options.data_path))
    process = subprocess.Popen(  # noqa: S603 - it is this program, with its own flags
        _command(options),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        preexec_fn=tie_to_parent(os.getpid()),  # noqa: PLW1509 - no other thread exists yet
    )
    try:
        address = _address(process, say)
        decommission(
            DecommissionOptions(address, options.timeout_ns / SECOND, 0.0, options.to, options.fewer_copies)
        )
    except DrainError as error:
        say(f"{options.data_path} is not decommissioned: {error}")
        return False
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    write_message(f"{options.data_path} is decommissioned", sys.stdout)
    return True


def _command(options: RescueOptions) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "nsqd",
        f"--data-path={options.data_path}",
        f"--node-id={_node_id(options)}",
    ]
    command += ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", "--broadcast-address=127.0.0.1"]
    return [*command, "--replicas=1", "--accept-replicas=false", *options.nsqd]


def _node_id(options: RescueOptions) -> int:
    """The id of the node whose data path it is, from its newest files. Raises DataPathRefused."""
    disk, path = Disk(), options.data_path
    try:
        folders = [path / name for name in disk.names(path) if name.endswith(FOLDER_SUFFIX)]
        return max((node_id_of(disk, folder) for folder in folders), default=0)
    except OSError as error:
        raise DataPathRefused(f"cannot read {path}: {error}") from error


def _address(process: "subprocess.Popen[str]", say: Callable[[str], None]) -> str:
    """Where the nsqd answers; its later warnings are passed on by a thread. Raises DataPathRefused."""
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    last = ""
    for line in process.stderr:
        found = _LISTENS.search(line)
        if found is not None:
            threading.Thread(target=_pass_on, args=(process, say), daemon=True).start()
            return found[1]
        last = _LOGGED.sub("", line).strip() or last
    raise DataPathRefused(f"nsqd does not start: {last}")


def _pass_on(process: "subprocess.Popen[str]", say: Callable[[str], None]) -> None:
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    for line in process.stderr:
        if _LOGGED.match(line):
            say(_LOGGED.sub("", line).strip())
