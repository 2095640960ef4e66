"""A hook of MkDocs: pages outside of docs/ are on the site below project/, and links lead there."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "client/CHANGELOG.md",
    "deploy/helm/nsq/README.md",
    "deploy/helm/nsq-consumer/README.md",
    "deploy/helm/nsq-load/README.md",
)


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the pages outside of docs/, and the files to which pages link."""
    for name in OUTSIDE:
        files.append(File.generated(config, f"project/{name}", content=(ROOT / name).read_text("utf-8")))
    licence = f"```\n{(ROOT / 'LICENSE').read_text('utf-8')}```\n"
    files.append(File.generated(config, "project/LICENSE.md", content=f"# License\n\n{licence}"))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links between the pages below docs/ and the others."""
    here = page.file.src_uri
    # Where the page is in the repository.
    inside = not here.startswith("project/")
    source = f"docs/{here}" if inside else here.removeprefix("project/")

    def moved(match: re.Match[str]) -> str:
        path, hash_, anchor = match[1].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if target == "LICENSE":
            target = "LICENSE.md"
        place = target.removeprefix("docs/") if target.startswith("docs/") else f"project/{target}"
        return f"]({posixpath.relpath(place, posixpath.dirname(here) or '.')}{hash_}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", moved, markdown)
