"""The cluster secret, in the file of --cluster-secret-file."""

from collections.abc import Callable
from pathlib import Path

from nsqcore.process.lifecycle import StartupError
from nsqd.replication.membership import parse_secrets


class _UnusableFile(Exception):
    """The file has no usable secret; the text is one sentence."""


class ClusterSecret:
    """The secrets in a file, read for each connection, so that they can be rotated."""

    def __init__(self, path: str, warn: Callable[[str], None]) -> None:
        """*warn* is called when the file becomes unusable later. Raises StartupError."""
        self._path = path
        self._warn = warn
        # Why the file is unusable now; one warning is given for each reason.
        self._problem = ""
        try:
            self._secrets = self._read()
        except _UnusableFile as error:
            raise StartupError(str(error)) from error

    def __call__(self) -> tuple[bytes, ...]:
        """The secrets in the file, the first of which proves; empty without a file.

        While the file is unusable, these are the secrets that it had before.
        """
        try:
            self._secrets = self._read()
        except _UnusableFile as error:
            if str(error) != self._problem:
                self._warn(f"{error}; the secrets of the last usable file stay in force")
            self._problem = str(error)
        else:
            self._problem = ""
        return self._secrets

    def _read(self) -> tuple[bytes, ...]:
        """Raises _UnusableFile."""
        if not self._path:
            return ()
        try:
            return parse_secrets(Path(self._path).read_bytes())
        except OSError as error:
            raise _UnusableFile(f"failed to read --cluster-secret-file - {error}") from error
        except ValueError as error:
            raise _UnusableFile(f"--cluster-secret-file {self._path} is not usable: {error}") from error
