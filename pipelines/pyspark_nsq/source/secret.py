"""A secret in a file of its own, as Kubernetes mounts it; every use reads it again, so it can be changed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark_nsq.source.errors import SourceError


@dataclass(frozen=True, slots=True)
class SourceSecret:
    """The text of a file without the blanks around it, or no secret when there is no file."""

    path: str = ""

    def headers(self) -> dict[str, str]:
        """What an HTTP request carries to show the secret. Raises SourceError."""
        if not self.path:
            return {}
        try:
            secret = Path(self.path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not text"
            raise SourceError(
                f"option authSecretFile: {self.path} cannot be read: {reason.lower()}"
            ) from error
        if not secret or any(character < " " for character in secret):
            raise SourceError(f"option authSecretFile: {self.path} is empty or has several lines")
        return {"Authorization": f"Bearer {secret}"}


NO_SECRET: Final = SourceSecret()
