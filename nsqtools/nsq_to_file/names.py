"""File names: what a format makes of a topic, a host, a moment and a revision. Pure."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

# The codes of the original. Any other one stays as it was typed, so that a format means the same to both.
_CODES: Final = frozenset("AaBbdHIMmpSYyZz")
_CODE: Final = re.compile(r"%(.)", re.DOTALL)

TOPIC, HOST, PID, DATETIME, REV = "<TOPIC>", "<HOST>", "<PID>", "<DATETIME>", "<REV>"


def format_time(layout: str, moment: datetime) -> str:
    """Write *moment*, which knows its time zone, by the codes of strftime."""

    def written(code: re.Match[str]) -> str:
        if code[1] == "%":
            return "%"
        return moment.strftime(code[0]) if code[1] in _CODES else code[0]

    return _CODE.sub(written, layout)


def host_text(identifier: str, hostname: str) -> str:
    """What stands for ``<HOST>``: the short host name, or the identifier with its own placeholders filled."""
    short = hostname.partition(".")[0]
    if not identifier:
        return short
    return identifier.replace("<SHORT_HOST>", short).replace("<HOSTNAME>", hostname)


@dataclass(frozen=True, slots=True)
class Naming:
    """How the files of one run are called; relative to the folder they are in."""

    filename_format: str
    datetime_format: str
    host: str
    pid: int
    gzip: bool = False
    revisions: bool = False
    """Whether names carry a revision, because a file may have to give way to one that is there."""

    def problem(self) -> str | None:
        if self.revisions and REV not in self.filename_format:
            return "missing <REV> in --filename-format when gzip, rotation, or work dir enabled"
        return None

    def of(self, topic: str) -> "TopicNames":
        text = self.filename_format
        if not self.revisions:
            text = text.replace(REV, "")
        text = text.replace(TOPIC, topic).replace(HOST, self.host)
        if self.gzip and not text.endswith(".gz"):
            text += ".gz"
        return TopicNames(text, self.datetime_format, self.pid)


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names of one topic's files."""

    text: str
    datetime_format: str
    pid: int

    def at(self, moment: datetime) -> str:
        """The name for a moment, without its revision: a file is for as long as this stays the same."""
        text = self.text.replace(PID, str(self.pid))
        return text.replace(DATETIME, format_time(self.datetime_format, moment))

    def pattern(self) -> re.Pattern[str]:
        """Matches what any run, at any time, would have called a file of this topic."""
        known = {PID: r"\d+", DATETIME: ".*", REV: r"-\d{6,}"}
        parts = re.split("(" + "|".join(known) + ")", self.text)
        return re.compile("".join(known.get(part, re.escape(part)) for part in parts), re.DOTALL)


def revised(name: str, revision: int) -> str:
    return name.replace(REV, f"-{revision:06d}")
