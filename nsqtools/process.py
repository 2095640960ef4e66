"""Runs a coroutine as a command: event loop, signals, lines on stderr, exit code."""

import contextlib
import logging
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from nsqcore.options.options import parse
from nsqcore.process import output
from nsqcore.process.lifecycle import StartupError, raise_file_limit, run_until_stopped
from nsqcore.process.logs import Log, timestamp
from nsqcore.process.threads import ThreadRefused
from nsqtools.options import ToolOptions

# This is half of the import time of a command, and --help and --version do not need it.
if TYPE_CHECKING:
    import asyncio

_WORDS: Final = {logging.DEBUG: "DBG", logging.INFO: "INF", logging.WARNING: "WRN"}


class Failed(Exception):
    """The reason why the command ends with exit code 1, as one sentence."""


def log_line(sentence: str) -> None:
    """Write one line for the operator on stderr, if possible; stdout is for data."""
    output.write_message(f"{timestamp()[:19]} {sentence}")


def run(
    main: Callable[["asyncio.Event"], Coroutine[Any, Any, None]],
    tell: Callable[[str], None] = log_line,
    *,
    hang_up_stops: bool = True,
) -> int:
    """Run ``main(stop)`` until it returns, and return the exit code.

    The first SIGINT, SIGTERM or SIGHUP sets ``stop``; *main* then ends in order. Failed gives 1, and its
    sentence goes to *tell*. *hang_up_stops* is as in `lifecycle.run_until_stopped`. When stdout has no reader
    any more, the exit code is the one that a shell reports for the original, which SIGPIPE ends.
    """
    raise_file_limit()
    show_client_lines()
    try:
        run_until_stopped(main, Log(), hang_up_stops=hang_up_stops)
    except output.ReaderEnded:
        return output.READER_ENDED
    except output.Unwritable as failure:
        tell(f"ERROR: {failure}")
        return 1
    except (Failed, StartupError, ThreadRefused) as failure:
        tell(str(failure))
        return 1
    except KeyboardInterrupt:  # before the signal handlers were installed
        return 0
    return 0


def tool(kind: type[ToolOptions], work: str) -> Callable[..., int]:
    """The ``main`` of a command: it runs ``work(options, stop)`` as `run` does.

    *work* is named as ``module:function``, because loading it is most of a start.
    The options are those of the command line, or of its argument.
    """

    def main(argv: Sequence[str] | None = None) -> int:
        options = parse(kind, kind.program, sys.argv[1:] if argv is None else argv)

        async def working(stop: "asyncio.Event") -> None:
            # When signals are already handled.
            module, _, function = work.partition(":")
            await getattr(import_module(module), function)(options, stop)

        return run(working)

    return main


async def unless_stopped(stop: "asyncio.Event", work: Coroutine[Any, Any, None]) -> None:
    """Run *work* to its end, or cancel it when ``stop`` is set before that."""
    import asyncio

    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working


class _ClientFormatter(logging.Formatter):
    """``2026/11/20 07:39:53 INF text``, as the client library of the original writes on stderr."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{timestamp(record.created)[:19]} {_WORDS.get(record.levelno, 'ERR')} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def show_client_lines() -> None:
    """Write log lines of the client on stderr from INFO up, those of other libraries from WARNING up."""
    handler = logging.StreamHandler()
    handler.setFormatter(_ClientFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("nsqclient").setLevel(logging.INFO)
