"""One fault to put into the source, and the commands that should catch it."""

from dataclasses import dataclass
from pathlib import Path


class Stale(Exception):
    """The old text is not in the file exactly once."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """Replaces the text *old*, which must be in *file* once, by *new*."""

    name: str
    file: str
    old: str
    new: str
    # Arguments of `python -m tests.campaign`, or of pytest if the first is a path. They are tried in turn.
    caught_by: tuple[str, ...]

    def apply(self, root: Path) -> str:
        """Change the file below *root*; return its old content. Raises Stale."""
        path = root / self.file
        source = path.read_text() if path.exists() else ""
        found = source.count(self.old)
        if found != 1:
            raise Stale(f"its text is {found} times in {self.file}, not once")
        path.write_text(source.replace(self.old, self.new))
        return source
