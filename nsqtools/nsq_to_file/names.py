"""File names, made by a format from topic, host, time and revision. Pure."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

# The codes of the original. Any other code stays as typed, so that a format means the same to both programs.
_CODES: Final = frozenset("AaBbdHIMmpSYyZz")
_CODE: Final = re.compile(r"%(.)", re.DOTALL)

TOPIC, HOST, PID, DATETIME, REV = "<TOPIC>", "<HOST>", "<PID>", "<DATETIME>", "<REV>"


def format_time(layout: str, moment: datetime) -> str:
    """Format *moment*, which has a time zone, by the codes of strftime."""

    def written(code: re.Match[str]) -> str:
        if code[1] == "%":
            return "%"
        return moment.strftime(code[0]) if code[1] in _CODES else code[0]

    return _CODE.sub(written, layout)


def host_text(identifier: str, hostname: str) -> str:
    """The text for ``<HOST>``: the short host name, or the identifier with its own placeholders filled."""
    short = hostname.partition(".")[0]
    if not identifier:
        return short
    return identifier.replace("<SHORT_HOST>", short).replace("<HOSTNAME>", hostname)


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of the files of one run, relative to their folder."""

    filename_format: str
    datetime_format: str
    host: str
    pid: int
    gzip: bool = False
    revisions: bool = False
    """Whether names have a revision, for when a file with the same name exists."""

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
        """The name for a moment, without its revision: a file is used as long as this stays the same."""
        text = self.text.replace(PID, str(self.pid))
        # Names are below their folder, also when the format begins with a slash.
        return text.replace(DATETIME, format_time(self.datetime_format, moment)).lstrip("/")

    def pattern(self) -> re.Pattern[str]:
        """Matches every name that any run at any time could give to a file of this topic."""
        known = {PID: r"\d+", DATETIME: ".*", REV: r"-\d{6,}"}
        parts = re.split("(" + "|".join(known) + ")", self.text.lstrip("/"))
        return re.compile("".join(known.get(part, re.escape(part)) for part in parts), re.DOTALL)


def revised(name: str, revision: int) -> str:
    return name.replace(REV, f"-{revision:06d}")
