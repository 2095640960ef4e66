"""A secret in a file of its own, as Kubernetes mounts it; every use reads it again, so it can be changed."""

from pathlib import Path


class SecretFile:
    """The text of a file without the blanks around it, or no secret when there is no file."""

    def __init__(self, path: str = "") -> None:
        self._path = path

    def read(self) -> str:
        """Return the secret, empty without one; raises OSError or ValueError with a sentence."""
        if not self._path:
            return ""
        try:
            secret = Path(self._path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise OSError(f"cannot read the AUTH secret - open {self._path}: {reason}") from error
        if not secret or any(character < " " for character in secret):
            raise ValueError(f"cannot use the AUTH secret in {self._path}: it is empty or has several lines")
        return secret

    def headers(self) -> dict[str, str]:
        """Return what an HTTP request carries to show the secret."""
        secret = self.read()
        return {"Authorization": f"Bearer {secret}"} if secret else {}


NO_SECRET = SecretFile()
