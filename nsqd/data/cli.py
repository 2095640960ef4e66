"""The ``nsqd-data`` command.

    nsqd-data verify  --data-path=/data                 one line for everything that is damaged
    nsqd-data summary --data-path=/data                 topics, channels, segments
    nsqd-data dump    --data-path=/data --topic=T       messages as JSON lines
    nsqd-data repair  --data-path=/data [--write]       what would be repaired; --write repairs it
    nsqd-data decommission --data-path=/data --cluster-secret-file=F --replica=HOST:PORT
                                                        all logs are transferred to other nodes
    nsqd-data forget-node --data-path=/data IDENTITY    a node that does not come back
    nsqd-data new-identity --data-path=/data            the second of two snapshots of one disk

Exits with 0 when all is well, 1 when something is damaged, lost or not transferred, 2 when the command could
not do its work.
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from nsqclient.wire.durations import SECOND
from nsqcore.options.arguments import Address, ArgumentParser, duration_of
from nsqd.log.gaps import EVERYTHING
from nsqd.log.ids import ID_LENGTH, SEQUENCE_MASK

PROGRAM: Final = "nsqd-data"
_NS: Final = 1_000_000_000
_HEX_IDENTITY: Final = re.compile(r"[0-9a-f]{32}")
_HEX_ID: Final = re.compile(rf"[0-9a-f]{{{ID_LENGTH}}}")


def argument_parser() -> ArgumentParser:
    parser = ArgumentParser(prog=PROGRAM, description="Examine and repair a data path of nsqd.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def stopped(name: str, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        added.add_argument("--data-path", required=True, type=_folder, metavar="DIR", help="of the nsqd")
        return added

    def command(name: str, text: str) -> argparse.ArgumentParser:
        added = stopped(name, text)
        added.add_argument("--topic", default="", metavar="NAME", help="only this one")
        return added

    command("verify", "read everything and name what is damaged")
    summarise = command("summary", "topics, channels and their pending messages, segments")
    summarise.add_argument("--json", action="store_true", help="an object a topic")
    mend = command("repair", "show what would be repaired; with --write repair it")
    mend.add_argument("--write", action="store_true", help="change the files; no nsqd may run there")
    add = command("dump", "messages as JSON lines").add_argument
    add("--start", type=_number, default=0, metavar="SEQUENCE", help="the first sequence")
    add("--end", type=_number, default=EVERYTHING, metavar="SEQUENCE", help="the sequence behind the last")
    add("--id", type=_message_id, metavar="ID", help="the one message with this id of 16 digits")
    add("--from-time", type=_time, default=0, metavar="TIME", help="published then or later, such as "
        "2026-11-21T18:30:00Z")  # fmt: skip
    add("--to-time", type=_time, default=EVERYTHING, metavar="TIME", help="published earlier than that")
    add("--channel", default="", metavar="NAME", help="only the pending messages of this channel")
    add("--pending", action="store_true", help="name the channels in which each message is pending")
    add_rescue_arguments(
        stopped("decommission", "transfer all logs of a data path without an nsqd").add_argument
    )
    forget = stopped("forget-node", "forget a node that does not come back: no log waits for it")
    forget.add_argument("identity", type=_identity, metavar="IDENTITY", help="as in GET /replication")
    stopped("new-identity", "the second of two snapshots of one disk becomes another node")
    return parser


def add_rescue_arguments(add: Callable[..., object]) -> None:
    """Add the flags of decommission, which are those of nsqd and of nsqd-decommission."""
    add("--cluster-secret-file", required=True, metavar="FILE", help="with the secret of the cluster")
    add("--replica", action="append", type=Address(4150), metavar="HOST:PORT",
        help="TCP address of an nsqd that can take the logs over (may be given multiple times)")  # fmt: skip
    add("--lookupd-tcp-address", action="append", type=Address(4160), metavar="HOST:PORT",
        help="nsqlookupd that names such nodes (may be given multiple times)")  # fmt: skip
    add("--replication-tls", action="store_true", help="use TLS to them")
    add("--tls-root-ca-file", default="", metavar="FILE", help="trusted certificate authorities")
    add("--to", type=Address(4150), metavar="HOST:PORT", help="the one that takes the logs over")
    add("--fewer-copies", action="store_true", help="also when the target has no replica")
    add("--timeout", default=3600 * SECOND, type=duration_of, metavar="DURATION", help="how long it may take")


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    # NSQ's programs also accept flags with one dash.
    return argument_parser().parse_args([f"-{one}" if re.match(r"-[a-z]{2}", one) else one for one in argv])


def _folder(text: str) -> Path:
    path = Path(text).absolute()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return path


def _identity(text: str) -> bytes:
    if not _HEX_IDENTITY.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no identity: 32 hexadecimal digits are")
    return bytes.fromhex(text)


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
    # Imported here, because --help and --version do not need it.
    from nsqd.data.commands import run_command

    return run_command(given)
