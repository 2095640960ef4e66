"""Every link from a page of this repository leads to a file and a heading that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("*.md", "client/*.md", "deploy/**/*.md", "docs/**/*.md", "pipelines/*.md")
PAGES = sorted({page for place in PLACES for page in ROOT.glob(place)})


def without_code(page):
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    """The anchors of the headings, as on the repository's web pages."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    lost = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, heading = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (heading and there.suffix == ".md" and heading not in anchors(there)):
            lost.append(target)

    assert lost == []


def test_the_pages_are_found():
    names = {str(page.relative_to(ROOT)) for page in PAGES}

    assert {"README.md", "docs/client.md", "docs/reference/flags.md", "deploy/helm/nsq/README.md"} <= names
