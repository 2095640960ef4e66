"""One fault to put into the source, and the commands that should catch it."""

from dataclasses import dataclass
from pathlib import Path


class Stale(Exception):
    """The old text is not in the file, or there more than once; the message says which."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """Replaces the text *old*, which must be in *file* once, by *new*."""

    name: str
    file: str
    old: str
    new: str
    # Commands that should catch it: arguments of `python -m tests.campaign`, or of pytest if the first is a
    # path. They are tried in turn until one catches it.
    caught_by: tuple[str, ...] = ()
    # Why nothing can catch it, because the promises also hold without the line.
    equivalent: str = ""

    def why_stale(self, root: Path) -> str:
        """Return why it cannot be applied to the project at *root*; empty if it can."""
        path = root / self.file
        found = path.read_text().count(self.old) if path.exists() else 0
        return "" if found == 1 else f"{self.name}: its text is {found} times in {self.file}, not once"

    def apply(self, root: Path) -> str:
        """Change the file below *root*; return its old content. Raises Stale."""
        if reason := self.why_stale(root):
            raise Stale(reason)
        path = root / self.file
        source = path.read_text()
        mutated = source.replace(self.old, self.new)
        compile(mutated, self.file, "exec")
        path.write_text(mutated)
        return source
