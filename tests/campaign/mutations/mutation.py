"""One fault that is put into the source, and what is expected of it."""

from dataclasses import dataclass
from pathlib import Path


class Stale(Exception):
    """The text that is to be replaced is not in the file, or more than once; the text says which."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """In *file* the text *old*, found there once, becomes *new*."""

    name: str
    file: str
    old: str
    new: str
    # What catches it: arguments of `python -m tests.campaign`, or of pytest when the first is a path.
    # They are tried in turn until one does.
    caught_by: tuple[str, ...] = ()
    # Why nothing can catch it: the promises hold without the line.
    equivalent: str = ""

    def why_stale(self, root: Path) -> str:
        """Why it cannot be applied to the project at *root*; empty when it can."""
        path = root / self.file
        found = path.read_text().count(self.old) if path.exists() else 0
        return "" if found == 1 else f"{self.name}: its text is {found} times in {self.file}, not once"

    def apply(self, root: Path) -> str:
        """Change the file below *root*; returns what it was. Raises Stale."""
        if reason := self.why_stale(root):
            raise Stale(reason)
        path = root / self.file
        source = path.read_text()
        mutated = source.replace(self.old, self.new)
        compile(mutated, self.file, "exec")
        path.write_text(mutated)
        return source
