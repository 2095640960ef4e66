import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]

SCRIPT = """
import asyncio, signal, sys
from nsqcore.process.lifecycle import StartupError, handle_signal, run
from nsqcore.process.logs import Log

async def main(stop):
    if mode == "refuse":
        raise StartupError("listen (x) failed - in use")
    if mode == "crash":
        raise KeyError("lost")
    print("ready", flush=True)
    if mode == "reloads":
        sys.stdin.readline()
        handle_signal(signal.SIGHUP, lambda: print("reloaded", flush=True))
        print("loaded", flush=True)
    await stop.wait()
    print("stopping", flush=True)
    if mode == "stubborn":
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print("stopped", flush=True)

mode = sys.argv[1]
sys.exit(run("nsqd", main, Log("[custom] "), hang_up_stops=mode != "reloads"))
"""


def daemon(mode, **started):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, mode],
        **started,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_interrupt_and_hang_up_are_graceful_stops(number):
    with daemon("serve") as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=20)

    assert (process.returncode, out, err) == (0, "stopping\nstopped\n", "")


def test_sighup_with_other_meaning_does_not_end_loading_daemon():
    with daemon("reloads") as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGHUP)
        process.stdin.write("continue\n")
        process.stdin.flush()
        assert process.stdout.readline() == "loaded\n"
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "reloaded\n"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)

    assert (process.returncode, out, err) == (0, "stopping\nstopped\n", "")


def test_process_with_too_few_open_files_says_so():
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))

    with daemon("serve", preexec_fn=limit) as process:
        _, err = process.communicate(timeout=20)

    assert process.returncode == 1
    assert err.endswith("at most 12 files may be open (ulimit -n), and 32 are needed\n")
    assert err.count("\n") == 1


def test_signal_that_parent_ignores_stays_ignored():
    for mode in ("serve", "reloads"):
        with daemon(mode, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as process:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGHUP)
            process.stdin.write("continue\n")
            process.stdin.flush()
            process.send_signal(signal.SIGHUP)
            if mode == "reloads":
                assert process.stdout.readline() == "loaded\n"
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=20)

        assert (process.returncode, out, err) == (0, "stopping\nstopped\n", "")


def test_signals_have_their_meaning_until_the_end_of_process():
    def block():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    with daemon("serve", preexec_fn=block) as process:
        assert process.stdout.readline() == "ready\n"
        # Log rotation and monitoring send these.
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
            process.send_signal(number)
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)

    assert (process.returncode, out, err) == (0, "stopping\nstopped\n", "")


def test_further_signals_during_stop_are_ignored():
    with daemon("stubborn") as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate("continue\n", timeout=20)

    assert (process.returncode, out) == (0, "stopped\n")


def test_daemon_that_cannot_start_says_why_in_one_line():
    with daemon("refuse") as process:
        _, err = process.communicate(timeout=20)

    assert process.returncode == 1
    assert err.startswith("[nsqd] ")
    assert err.endswith(" FATAL: failed to instantiate nsqd - listen (x) failed - in use\n")
    assert err.count("\n") == 1


def test_fault_ends_process_with_fatal_line():
    with daemon("crash") as process:
        _, err = process.communicate(timeout=20)

    assert process.returncode == 1
    assert err.startswith("[custom] ")
    assert " FATAL: KeyError: 'lost'\nTraceback " in err


def test_closed_stream_becomes_no_other_file_and_its_data_goes_nowhere_else():
    script = """
import os, sys
from nsqcore.process.lifecycle import run
from nsqcore.process.logs import Log

async def main(stop):
    assert os.read(0, 1) == b""
    print("for the operator", file=sys.stderr)
    try:
        os.write(2, b"x")
    except OSError:
        print("stderr is closed")

sys.exit(run("nsqd", main, Log()))
"""
    ended = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -c "$1" <&- 2>&-', sys.executable, script],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert (ended.returncode, ended.stdout) == (0, "stderr is closed\n")


def test_limit_of_open_files_is_raised_to_what_system_grants():
    script = (
        "import resource\nfrom nsqcore.process.lifecycle import raise_file_limit\n"
        "raise_file_limit()\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -S -n 64; exec "$0" -c "$1"', sys.executable, script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert found.stdout.strip() == str((hard, hard))
