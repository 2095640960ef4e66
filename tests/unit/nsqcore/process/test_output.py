"""What cannot be written ends a command with a sentence, or is left out: each process is a real one."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nsqcore.process import output

FULL = "ERROR: failed to write to stdout - no space left on device\n"


def run(code: str, **streams) -> subprocess.CompletedProcess[str]:
    """Run code with buffered streams, as users do."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    started = [sys.executable, "-c", f"import sys; from nsqcore.process.output import *; {code}"]
    return subprocess.run(
        started,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )


@pytest.fixture
def full():
    with Path("/dev/full").open("wb") as full:
        yield full


@pytest.fixture
def unread():
    """The writing end of a pipe whose reader has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_output_is_written_unchanged():
    stream = io.StringIO()
    output.write_output("a\nb\n", stream)

    assert stream.getvalue() == "a\nb\n"


def test_output_that_cannot_be_written_ends_command_with_sentence(full):
    done = run('write_output("text")', stdout=full)

    assert (done.returncode, done.stderr) == (1, FULL)


def test_closed_stdout_ends_command_with_sentence():
    done = run('sys.stdout = None; write_output("text")')

    assert (done.returncode, done.stderr) == (1, "ERROR: failed to write to stdout - it is closed\n")


def test_reader_that_has_ended_ends_command_without_word(unread):
    done = run('write_output("text")', stdout=unread)

    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("call", ['write_all(b"text")', 'write_text("text")'])
def test_unwritable_stdout_is_error_for_caller(full, unread, call):
    code = f"try:\n    {call}\nexcept Unwritable as error:\n    sys.exit(type(error).__name__)"

    assert [run(f"\n{code}", stdout=out).stderr for out in (full, unread)] == [
        "Unwritable\n",
        "ReaderEnded\n",
    ]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_line_for_people_that_cannot_be_written_decides_nothing(full, unread, stream):
    code = f'write_message("line", sys.{stream}); sys.exit(3)'

    assert [run(code, **{stream: out}).returncode for out in (full, unread)] == [3, 3]


def test_line_for_people_goes_to_stderr():
    done = run('write_message("line")')

    assert (done.stdout, done.stderr) == ("", "line\n")
