"""The ``nsqd-data`` command.

    nsqd-data verify  --data-path=/data                 everything that is damaged, a line each
    nsqd-data summary --data-path=/data                 topics, channels, segments
    nsqd-data dump    --data-path=/data --topic=T       messages as JSON lines
    nsqd-data repair  --data-path=/data [--write]       what would be put right; with --write it is
    nsqd-data hand-over --data-path=/data --to=HOST:PORT  all that is owed goes to a running nsqd for good

Ends with 0 when all is well, 1 when something is damaged or lost, 2 when the command could not do its work.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from nsqcore.options.arguments import Address, ArgumentParser
from nsqd.data import dump, hand_over, repair, summary, verify
from nsqd.data.opened import DataPathRefused, OpenedDataPath, is_in_use
from nsqd.data.rehearsal import Rehearsal
from nsqd.log.disk import Disk
from nsqd.log.ids import ID_LENGTH, SEQUENCE_MASK
from nsqd.storage.lock import DataPathLocked, lock_data_path

PROGRAM: Final = "nsqd-data"
WELL, DAMAGED, FAILED = 0, 1, 2
_NS: Final = 1_000_000_000
_HEX_ID: Final = re.compile(rf"[0-9a-f]{{{ID_LENGTH}}}")


def argument_parser() -> ArgumentParser:
    parser = ArgumentParser(prog=PROGRAM, description="Examine and repair a data path of nsqd.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        added.add_argument("--data-path", required=True, type=_folder, metavar="DIR", help="of the nsqd")
        added.add_argument("--topic", default="", metavar="NAME", help="only this one")
        return added

    command("verify", "read everything and name what is damaged")
    summarise = command("summary", "topics, channels and what they are owed, segments")
    summarise.add_argument("--json", action="store_true", help="an object a topic")
    mend = command("repair", "show what would be repaired; with --write repair it")
    mend.add_argument("--write", action="store_true", help="change the files; no nsqd may run there")
    leave = command("hand-over", "let a running nsqd have all that is owed here, for good").add_argument
    leave(
        "--to",
        required=True,
        action="append",
        type=Address(4150),
        metavar="HOST:PORT",
        help="TCP address of the nsqd; of several the first that will",
    )
    leave("--tls", action="store_true", help="speak TLS to it")
    leave("--tls-root-ca-file", default="", metavar="FILE", help="trusted, instead of the system's list")
    leave("--tls-cert", default="", metavar="FILE", help="shown to it, with --tls-key")
    leave("--tls-key", default="", metavar="FILE", help="of --tls-cert")
    leave("--secret-file", default="", metavar="FILE", help="with the AUTH secret that it is shown")
    add = command("dump", "messages as JSON lines").add_argument
    add("--start", type=_number, default=0, metavar="SEQUENCE", help="the first sequence")
    add("--end", type=_number, default=dump.ALL, metavar="SEQUENCE", help="the sequence behind the last")
    add("--id", type=_message_id, metavar="ID", help="the one message with this id of 16 digits")
    add("--from-time", type=_time, default=0, metavar="TIME", help="published then or later, such as "
        "2026-11-21T18:30:00Z")  # fmt: skip
    add("--to-time", type=_time, default=dump.ALL, metavar="TIME", help="published earlier than that")
    add("--channel", default="", metavar="NAME", help="only what this channel is owed")
    add("--owed", action="store_true", help="say by which channels each message is owed")
    return parser


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    # NSQ's programs take flags with one dash as well.
    return argument_parser().parse_args([f"-{one}" if re.match(r"-[a-z]{2}", one) else one for one in argv])


def _folder(text: str) -> Path:
    path = Path(text).absolute()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return path


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no sequence number")
    return int(text)


def _message_id(text: str) -> int:
    if not _HEX_ID.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no message id: {ID_LENGTH} hexadecimal digits are")
    return int(text, 16) & SEQUENCE_MASK


def _time(text: str) -> int:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2026-11-21T18:30:00Z") from None
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * _NS)


def main(argv: Sequence[str] | None = None) -> int:
    given = parse_arguments(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(given)
        sys.stdout.flush()
        return code
    except (DataPathRefused, DataPathLocked) as error:
        _say(str(error))
        return FAILED
    except BrokenPipeError:
        # Whoever read our lines has gone; what is left of them is not to be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _run(given: argparse.Namespace) -> int:
    if given.command == "hand-over":
        if given.topic:
            raise DataPathRefused("a data path is handed over whole, not by topics")
        options = hand_over.HandOverOptions(
            given.data_path,
            tuple(given.to),
            given.tls,
            given.tls_root_ca_file,
            given.tls_cert,
            given.tls_key,
            given.secret_file,
        )
        return WELL if hand_over.hand_over(options, _say) else FAILED
    if given.command == "repair" and given.write:
        return _repair_for_good(given)
    if is_in_use(given.data_path):
        _say(f"an nsqd runs on {given.data_path}: what it is writing may look unfinished")
    with tempfile.TemporaryDirectory(prefix=f"{PROGRAM}-") as scratch:
        disk = Rehearsal(given.data_path, Path(scratch))
        with closing(OpenedDataPath(given.data_path, disk)) as opened:
            return _read_only(given, opened, disk)


def _read_only(given: argparse.Namespace, opened: OpenedDataPath, disk: Rehearsal) -> int:
    if given.command == "verify":
        return _print(verify.findings(opened, given.topic))
    if given.command == "repair":
        return _tell_repair(opened, disk, given.topic)
    if given.command == "summary":
        for one in summary.summaries(opened, given.topic):
            print(json.dumps(one) if given.json else "\n".join(summary.text(one)))
        return WELL
    return _dump(opened, given)


def _dump(opened: OpenedDataPath, given: argparse.Namespace) -> int:
    start, end = (given.start, given.end) if given.id is None else (given.id, given.id + 1)
    wanted = dump.Wanted(start, end, given.from_time, given.to_time, given.channel, given.owed)
    lost: list[str] = []
    for message in dump.messages(opened, given.topic, wanted, lost.append):
        print(json.dumps(message, ensure_ascii=False))
    for sentence in lost:
        _say(sentence)
    return DAMAGED if lost else WELL


def _tell_repair(opened: OpenedDataPath, disk: Rehearsal, topic: str) -> int:
    found = _print(repair.repair(opened, topic))
    for change in disk.changes:
        print(f"would {change}")
    return found


def _repair_for_good(given: argparse.Namespace) -> int:
    """Say what will be done, then do it, both under the lock that an nsqd takes."""
    lock = lock_data_path(given.data_path)
    try:
        with tempfile.TemporaryDirectory(prefix=f"{PROGRAM}-") as scratch:
            rehearsal = Rehearsal(given.data_path, Path(scratch))
            with closing(OpenedDataPath(given.data_path, rehearsal)) as opened:
                found = _tell_repair(opened, rehearsal, given.topic)
        if rehearsal.changes:
            with closing(OpenedDataPath(given.data_path, Disk())) as opened:
                for _ in repair.repair(opened, given.topic):
                    pass
            print("done")
        return found
    finally:
        Disk().close(lock)


def _print(sentences: Iterable[str]) -> int:
    found = WELL
    for sentence in sentences:
        print(sentence, flush=True)
        found = DAMAGED
    return found


def _say(sentence: str) -> None:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr)
