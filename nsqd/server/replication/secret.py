"""The secret for keepers that use auth servers."""

from collections.abc import Callable
from pathlib import Path

from nsqcore.process.lifecycle import StartupError
from nsqd.replication.fields import MAX_TEXT


class _Unusable(Exception):
    """The file holds no secret; the text is one sentence."""


class KeeperSecret:
    """The secret in a file, read for each connection, so that it can change."""

    def __init__(self, path: str, warn: Callable[[str], None]) -> None:
        """*warn* is told of a file that cannot be used later. Raises StartupError."""
        self._path = path
        self._warn = warn
        # Why the file cannot be used now; it is told once.
        self._problem = ""
        try:
            self._last = self._read()
        except _Unusable as error:
            raise StartupError(str(error)) from error

    def __call__(self) -> bytes:
        """Return the secret in the file, or the last one if the file cannot be used."""
        try:
            self._last = self._read()
        except _Unusable as error:
            if str(error) != self._problem:
                self._warn(f"{error}; the secret that it had before is sent")
            self._problem = str(error)
        else:
            self._problem = ""
        return self._last

    def _read(self) -> bytes:
        """The secret; empty without a file. Raises _Unusable."""
        if not self._path:
            return b""
        try:
            secret = Path(self._path).read_bytes().strip()
        except OSError as error:
            raise _Unusable(f"failed to read --keeper-secret-file - {error}") from error
        if not 0 < len(secret) <= MAX_TEXT:
            raise _Unusable(f"--keeper-secret-file must hold 1 to {MAX_TEXT} bytes, not {len(secret)}")
        return secret
