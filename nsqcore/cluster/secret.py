"""A secret in a file, as Kubernetes mounts it; every use reads the file again, so the secret can change."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SecretFile:
    """The text of a file without surrounding blanks, or no secret when no file is given."""

    path: str = ""
    label: str = "the AUTH secret"

    def read(self) -> str:
        """Return the secret, empty without one; raises OSError or ValueError with a sentence."""
        if not self.path:
            return ""
        try:
            secret = Path(self.path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise OSError(f"cannot read {self.label} - open {self.path}: {reason}") from error
        if not secret or any(character < " " for character in secret):
            raise ValueError(f"cannot use {self.label} in {self.path}: it is empty or has several lines")
        return secret

    def headers(self) -> dict[str, str]:
        """Return the headers with which an HTTP request sends the secret."""
        secret = self.read()
        return {"Authorization": f"Bearer {secret}"} if secret else {}


NO_SECRET = SecretFile()
