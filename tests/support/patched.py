"""An nsqd in whose process a script first changes what the system answers."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Self
from urllib.error import HTTPError

from tests.support.nursery import ROOT


class PatchedNsqd:
    """Starts the script, which ends with ``main(sys.argv[1:])`` of nsqd, and waits until HTTP is served."""

    def __init__(self, script: str, folder: Path, *flags: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", script),
                *(f"--data-path={folder}", "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"),
                *("--https-address=", "--broadcast-address=127.0.0.1", *flags),
            ],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )
        self.log = ""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line
            if found := re.search(r"HTTP: listening on (127.0.0.1:\d+)", line):
                self.address = found[1]
                break

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()

    def ask(self, path: str, data: bytes | None = None) -> tuple[int, str]:
        """Return the status and the body of an answer."""
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", data, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def ended(self, number: signal.Signals | None = None) -> int:
        """Send the signal, if there is one, and return the exit code; the log is then complete."""
        if number:
            self.process.send_signal(number)
        self.log += self.process.communicate(timeout=30)[1]
        return self.process.returncode
