"""The command lines of the programs that NSQ does not have: argparse, with one sentence for a mistake."""

import argparse
import re
import sys
from typing import Any, NoReturn

from nsqclient.wire.address import split_address
from nsqclient.wire.durations import Duration, meant_duration, parse_duration
from nsqcore.near_misses import meant_address, meant_name
from nsqcore.options.kinds import dialed
from nsqcore.process.output import write_output
from nsqcore.version import banner

_UNKNOWN = re.compile(r"unrecognized arguments: (--?[\w-]+)")


class ArgumentParser(argparse.ArgumentParser):
    """Writes one sentence about a mistake, without a page of usage before it, and ends with code 2.

    Every program has ``--version``; its subcommands, whose names have a blank, do not.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if " " not in self.prog:
            self.add_argument(
                "--version", action="version", version=banner(self.prog), help="print version string and exit"
            )

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout:
            write_output(message, file)
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        if match := _UNKNOWN.match(message):
            flags = [flag for action in self._actions for flag in action.option_strings]
            near = meant_name(match[1], flags)
            message += f"; is {near} meant?" if near else ""
        end = "" if message.endswith("?") else ";"
        self.exit(2, f"{self.prog}: {message}{end} {self.prog} --help lists all flags\n")


def duration_of(text: str) -> Duration:
    """For the ``type`` of an argument: ``90s`` in nanoseconds."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}{meant_duration(text)}") from None


class Address:
    """For the ``type`` of an argument: ``host:port``; *port* is the usual one, for hints."""

    def __init__(self, port: int) -> None:
        self._port = port

    def __call__(self, text: str) -> str:
        text = dialed(text)
        try:
            split_address(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}{meant_address(text, self._port)}") from None
        return text
