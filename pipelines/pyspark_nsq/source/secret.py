"""A secret in a file, as Kubernetes mounts it; it is read again for every use, so it can be changed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark_nsq.source.errors import SourceError


@dataclass(frozen=True, slots=True)
class SourceSecret:
    """The text of a file without surrounding blanks, or no secret without a file."""

    path: str = ""

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers that show the secret. Raises SourceError."""
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
