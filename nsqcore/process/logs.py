"""NSQ log lines on the standard logging package.

A line is ``<prefix>2026/11/20 09:16:38.123456 INFO: text``, on stderr; test harnesses of others wait for
certain lines.
"""

import logging
import re
from datetime import datetime
from enum import IntEnum
from types import TracebackType
from typing import Final, TextIO


class LogLevel(IntEnum):
    """How much is written; the numbers are what ``/config/log_level`` answers."""

    DEBUG = 1
    INFO = 2
    WARN = 3
    ERROR = 4
    FATAL = 5


_WORDS: Final = {level.name.lower(): level for level in LogLevel}

_STDLIB: Final = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARN: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.FATAL: logging.CRITICAL,
}


def parse_log_level(word: str) -> LogLevel:
    """Return the level named *word* in any letter case, or raise ValueError with NSQ's sentence."""
    level = _WORDS.get(word.lower())
    if level is None:
        raise ValueError(f"invalid log level '{word}' (debug, info, warn, error, fatal)")
    return level


def timestamp(seconds: float | None = None) -> str:
    """Return local time as ``2026/11/20 09:16:38.123456``; now when no *seconds* are given."""
    moment = datetime.now() if seconds is None else datetime.fromtimestamp(seconds)  # noqa: DTZ005, DTZ006 - local time by contract
    return moment.strftime("%Y/%m/%d %H:%M:%S.%f")


# User and password of an address: up to the last @ before its path.
_PASSWORD: Final = re.compile(r"://[^/?#\s\"']*@")
_CONTROL: Final = {
    number: f"\\x{number:02x}" for number in (*range(0x20), *range(0x7F, 0xA0)) if number != ord("\t")
} | {ord("\n"): "\\n", ord("\r"): "\\r", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def one_line(text: str) -> str:
    """Escape characters that would end a line or move a terminal's cursor.

    Otherwise a name of a topic could make a line that resembles another event.
    """
    return text if text.isprintable() else text.translate(_CONTROL)


def without_passwords(text: str) -> str:
    """Remove users and passwords of addresses from *text*."""
    return _PASSWORD.sub("://", text) if "://" in text and "@" in text else text


class _LineFormatter(logging.Formatter):
    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        level = "FATAL" if record.levelno >= logging.CRITICAL else record.levelname
        message = one_line(without_passwords(record.getMessage()))
        line = f"{self.prefix}{timestamp(record.created)} {level}: {message}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class Log:
    """The log of one daemon; several may live in one process without sharing anything.

    ``debug_enabled`` is a plain attribute, so that hot code can cheaply skip building a debug line.
    """

    def __init__(
        self, prefix: str = "", level: LogLevel = LogLevel.INFO, stream: TextIO | None = None
    ) -> None:
        self.prefix = prefix
        self.handler: logging.Handler = logging.StreamHandler(stream)
        self.handler.setFormatter(_LineFormatter(prefix))
        # Not registered: a registered logger is global and would mix the lines of two daemons.
        self._logger = logging.Logger(prefix.strip() or "nsq")  # noqa: LOG001
        self._logger.addHandler(self.handler)
        self.debug_enabled = False
        self.info_enabled = True
        self.set_level(level)

    def set_level(self, level: LogLevel) -> None:
        self.level = level
        self._logger.setLevel(_STDLIB[level])
        self.debug_enabled = level <= LogLevel.DEBUG
        self.info_enabled = level <= LogLevel.INFO

    def debug(self, text: str, *values: object) -> None:
        if self.debug_enabled:
            self._logger.debug(text, *values)

    def info(self, text: str, *values: object) -> None:
        if self.info_enabled:
            self._logger.info(text, *values)

    def warning(self, text: str, *values: object) -> None:
        self._logger.warning(text, *values)

    def error(self, text: str, *values: object, error: BaseException | None = None) -> None:
        """Write an ERROR line; with *error* its traceback follows."""
        self._logger.error(text, *values, exc_info=_exc_info(error))

    def fatal(self, text: str, *values: object, error: BaseException | None = None) -> None:
        """Write a FATAL line; the caller ends the process."""
        self._logger.critical(text, *values, exc_info=_exc_info(error))

    def adopt_root(self) -> None:
        """Write warnings of libraries (asyncio, aiohttp) as lines of this log."""
        root = logging.getLogger()
        root.handlers = [self.handler]
        root.setLevel(logging.WARNING)


def _exc_info(
    error: BaseException | None,
) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    return None if error is None else (type(error), error, error.__traceback__)
