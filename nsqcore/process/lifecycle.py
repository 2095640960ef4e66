"""Runs a coroutine as a process: event loop, signals, exit code."""

import atexit
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from nsqcore.process.logs import Log
from nsqcore.process.threads import ThreadRefused, start_pool

# Half of the import time of a command, and not needed for --help and --version.
if TYPE_CHECKING:
    import asyncio

# SIGHUP is also a graceful stop: a closed terminal must not lose data that a clean stop stores.
_STOP_SIGNALS: Final = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))

# The event loop, the ports and the data path take about twenty.
_MIN_FILES: Final = 32
# Log rotation and monitoring send these to processes that know nothing of them.
_HARMLESS_SIGNALS: Final = frozenset((signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM))


# The exit code of the original when memory is refused.
OUT_OF_MEMORY: Final = 2

# libuv starts as many threads for the resolution of names.
RESOLVER_THREADS: Final = 4
# Threads for short blocking work, such as loading a library.
HELPER_THREADS: Final = 4


class StartupError(Exception):
    """The reason why a daemon cannot start, as one sentence for its operator."""


def run(
    program: str,
    main: Callable[["asyncio.Event"], Coroutine[Any, Any, None]],
    log: Log,
    *,
    hang_up_stops: bool = True,
    threads: int = HELPER_THREADS,
) -> int:
    """Run ``main(stop)`` until it returns, and return the exit code.

    *main* starts the daemon, waits for ``stop``, which the first SIGINT, SIGTERM or SIGHUP sets (later ones
    are ignored), and stops in order. A StartupError or any other exception is logged as FATAL and gives 1.
    Memory that is refused ends the process with a FATAL line and 2. *hang_up_stops* and *threads* are as in
    :func:`run_until_stopped`.
    """
    raise_file_limit()
    log.adopt_root()
    try:
        run_until_stopped(main, log, hang_up_stops=hang_up_stops, threads=threads)
    except (StartupError, ThreadRefused) as error:
        # This line starts with the program's name whatever --log-prefix says, because people grep for it.
        Log(f"[{program}] ").fatal("failed to instantiate %s - %s", program, error)
        return 1
    except KeyboardInterrupt:
        return 0
    except MemoryError as error:
        _end_without_memory(log, error)
    except Exception as error:  # noqa: BLE001 - every error not handled before ends the process with a line
        log.fatal("%s: %s", type(error).__name__, error, error=error)
        return 1
    return 0


def run_until_stopped(
    main: Callable[["asyncio.Event"], Coroutine[Any, Any, None]],
    log: Log,
    *,
    hang_up_stops: bool = True,
    threads: int = HELPER_THREADS,
) -> None:
    """Run ``main(stop)`` on a new event loop; a signal before that ends the process with 0.

    The event loop hands blocking work to *threads* threads, which run before *main*. Raises ThreadRefused.

    Without *hang_up_stops* SIGHUP means something else, such as reading a file again: it is ignored until
    *main* handles it, which must begin before that file is read first. A signal that the parent ignores, as
    nohup does with SIGHUP, stays ignored. Raises StartupError when too few files may be open.
    """
    most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= most_files < _MIN_FILES:
        raise StartupError(f"at most {most_files} files may be open (ulimit -n), and {_MIN_FILES} are needed")
    stop_signals = _STOP_SIGNALS if hang_up_stops else _STOP_SIGNALS - {signal.SIGHUP}
    for number in _STOP_SIGNALS:
        _set_handler(number, _end if number in stop_signals else _ignore)
    for number in _HARMLESS_SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _ignore)
    # A parent may have blocked them.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    fill_standard_streams()
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_stopped(main, stop_signals, log, threads))


def handle_signal(number: signal.Signals, callback: Callable[[], object]) -> None:
    """Call *callback* on the running event loop for each such signal, unless the parent has it ignored."""
    import asyncio

    loop = asyncio.get_running_loop()

    def handler(_number: int, _frame: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: the process is about to end
            loop.call_soon_threadsafe(callback)

    _set_handler(number, handler)


def _set_handler(number: signal.Signals, handler: Callable[[int, Any], object]) -> None:
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, handler)


def _end(number: int, frame: object) -> NoReturn:
    """End the process immediately, because nothing has begun yet."""
    del number, frame
    raise SystemExit(0)


def _ignore(number: int, frame: object) -> None:
    """Do nothing. Other than SIG_IGN this is not inherited by programs that the process starts."""


async def _until_stopped(
    main: Callable[["asyncio.Event"], Coroutine[Any, Any, None]],
    stop_signals: frozenset[signal.Signals],
    log: Log,
    threads: int,
) -> None:
    """Run ``main(stop)``; each of *stop_signals* sets ``stop``."""
    import asyncio

    stop = asyncio.Event()
    for number in stop_signals:
        # The event loop's own handlers would go with the loop, and a second signal would kill the process.
        handle_signal(number, stop.set)
    # Python's handlers go with the interpreter.
    atexit.register(_ignore_stop_signals)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(partial(_report, log))
    # uvloop ends the process without a sentence when its threads are refused, so room for them is tested.
    start_pool(RESOLVER_THREADS, "resolver").shutdown()
    await loop.getaddrinfo("127.0.0.1", 0)
    pool = start_pool(threads, "worker")
    loop.set_default_executor(pool)
    try:
        await main(stop)
    finally:
        # The loop would start a thread to wait for these, which the system may refuse.
        loop.set_default_executor(None)  # type: ignore[arg-type]
        pool.shutdown()


def _report(log: Log, loop: "asyncio.AbstractEventLoop", context: dict[str, Any]) -> None:
    """Handle an error of a callback: it is logged, and refused memory ends the process."""
    error = context.get("exception")
    if isinstance(error, MemoryError):
        _end_without_memory(log, error)
    loop.default_exception_handler(context)


def _end_without_memory(log: Log, error: MemoryError) -> NoReturn:
    """End the process as a kill would, because it is unknown which work is half done."""
    try:
        log.fatal("out of memory: the system refuses memory to this process", error=error)
    finally:
        os._exit(OUT_OF_MEMORY)


def _ignore_stop_signals() -> None:
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def fill_standard_streams() -> None:
    """Open the null device as stdin, stdout or stderr if the process was started without it.

    Otherwise the next file or connection would get its number, and what is meant for stdout would go there.
    It can only be read, so that data for a closed stdout is an error and not lost.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # gets the lowest free number
    if sys.stderr is None:
        # print() to None would write to stdout.
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def raise_file_limit() -> None:
    """Allow as many open files as the system grants, because each client is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        # Some systems refuse an unlimited soft limit; then the old one stays.
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
