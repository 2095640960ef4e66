#!/usr/bin/env python3
"""Check the language of the pages, help texts, error sentences and console labels.

It looks for words that the glossary replaces, and for sentences of more than 35 words.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAX_WORDS = 35
# Help texts, metrics and error sentences are on the generated pages; labels are in nsqadmin's templates.
PAGES = ("*.md", "docs/*.md", "docs/reference/*.md", "docs/internals/*.md", "client/*.md", "pipelines/*.md")
LABELS = ("nsqadmin/**/*.html",)
# The changelog has the table of old names.
ANY_WORD = {"CHANGELOG.md", "client/CHANGELOG.md"}
# Pages for developers, and generated ones.
ANY_LENGTH = (
    *ANY_WORD,
    "docs/reference/",
    "docs/internals/",
    "docs/architecture.md",
    "docs/storage-format.md",
)
INSTEAD = {
    r"nobody|somebody|whoever": "name the subject",
    r"for good|for ever": "permanently",
    r"at once": "immediately, or at the same time",
    r"meanwhile": "until then",
    r"beside": "next to, or compared with",
    r"anew": "again",
    r"seldom": "rarely",
    r"goes on|go on|going on": "continue",
    r"gives? out|giv(?:en|ing) out": "deliver",
    r"lets? go|puts? away": "name what is done",
    r"is told|are told|is asked|are asked|is waited for|are waited for": "use the active voice",
    r"in its turn|by the way|as it lies": "leave it out",
    r"keepers?": "replica",
    r"hand(?:s|ed|ing)?[- ]overs?|handovers?": "transfer, decommission",
    r"appointments?|appointed": "replica set",
    r"stands? in|stood in": "take over",
    r"owe[sd]?|owing": "pending, backlog",
    r"troubles?": "problem",
    r"figures?": "metric, number",
    r"time-outs?": "timeout",
}
PATTERNS = [(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), other) for words, other in INSTEAD.items()]


def blank(match: re.Match[str]) -> str:
    """Return as many newlines as the match has, so that line numbers stay."""
    return "\n" * match[0].count("\n")


def prose(path: Path) -> str:
    """Return the text of a page or a template without code, links' addresses and markup."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        return re.sub(r"(?s){[{%#].*?[#%}]}|<(script|style)\b.*?</\1>|<[^>]*>", blank, text)
    text = re.sub(r"(?ms)^ *```.*?^ *```|<!--.*?-->|!\[[^\]]*\]\([^)]*\)", blank, text)
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`", "X", text))


def sentences(text: str) -> list[tuple[int, str]]:
    """Return (line, sentence) of each sentence; rows and cells of tables, list items and headings end one."""
    found, line = [], 1
    for piece in re.split(r"(\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) )|(?<=[.?!])\**\)?\s+|(?<!\\)\|)", text):
        if piece.strip(" |\n"):
            found.append((line, piece))
        line += piece.count("\n")
    return found


def problems(path: Path, root: Path = ROOT) -> list[str]:
    """Return a line for each word to replace and each long sentence of a file below *root*."""
    name = str(path.relative_to(root))
    text = prose(path)
    found = []
    if name not in ANY_WORD:
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, other in PATTERNS:
                found += [f"{name}:{number}: {one[0]!r}: {other}" for one in pattern.finditer(line)]
    if path.suffix == ".md" and not name.startswith(ANY_LENGTH):
        for number, sentence in sentences(text):
            count = len(re.findall(r"[^\W_][\w'./-]*", sentence))
            if count > MAX_WORDS:
                found.append(f"{name}:{number}: a sentence of {count} words")
    return found


def main() -> int:
    """Print every problem; return 1 if there are any."""
    paths = sorted({path for pattern in (*PAGES, *LABELS) for path in ROOT.glob(pattern)})
    found = [problem for path in paths for problem in problems(path)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
