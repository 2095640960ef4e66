"""The secret that signs sessions, read again when its file changes: a new one ends all sessions."""

from pathlib import Path
from typing import Final

from nsqcore.process.file_stamp import FileStamp, stamp_of
from nsqcore.process.logs import Log

_MIN_BYTES: Final = 32


class SessionSecret:
    """The secret of the file as it is now; while the file cannot be used, the secret that it had before."""

    def __init__(self, path: str, log: Log) -> None:
        """Raise OSError or ValueError if the file cannot be used."""
        self._path = Path(path)
        self._log = log
        self._stamp: FileStamp | None = None
        self._problem = ""
        self._secret = b""
        self._follow()

    def __call__(self) -> bytes:
        try:
            self._follow()
            problem = ""
        except (OSError, ValueError) as error:
            problem = (error.strerror or "") if isinstance(error, OSError) else str(error)
        if problem and problem != self._problem:
            self._log.warning(
                "cannot use --session-secret-file (%s) - %s; the old secret is used on", self._path, problem
            )
        self._problem = problem
        return self._secret

    def _follow(self) -> None:
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return
        secret = self._path.read_bytes().strip()
        if len(secret) < _MIN_BYTES:
            raise ValueError(f"the secret has to have {_MIN_BYTES} bytes or more")
        self._secret, self._stamp = secret, stamp
