"""Every link, module, test and metric that a page names exists, and docs/README.md lists every page."""

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
def test_links_lead_somewhere(page):
    lost = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, heading = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (heading and there.suffix == ".md" and heading not in anchors(there)):
            lost.append(target)

    assert lost == []


def names_in(page, pattern):
    return set(re.findall(pattern, without_code(page)))


# The programs that the readers of the README and of first steps make.
READERS = {"greet.py", "fail.py"}
MODULES = [
    f"/{path.relative_to(ROOT)}" for folder in ("*.py", "[a-z]*/**/*.py") for path in ROOT.glob(folder)
]
TESTS = {
    name
    for path in (ROOT / "tests").rglob("*.py")
    for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
} | {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
METRICS = set(
    re.findall(r"^\| `(\w+)`", (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_modules_exist(page):
    named = names_in(page, r"`([\w./-]+\.py)(?=[`: ])") - READERS

    assert {name for name in named if not any(module.endswith("/" + name) for module in MODULES)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_tests_exist(page):
    assert names_in(page, r"`(test_\w+)`") - TESTS == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_metrics_exist(page):
    named = names_in(page, r"\b(nsq(?:d|lookupd|admin)_\w+)")

    assert {name for name in named - METRICS if not name.endswith(("_address", "_addresses"))} == set()


def test_pages_are_found():
    names = {str(page.relative_to(ROOT)) for page in PAGES}

    assert {"README.md", "docs/client.md", "docs/reference/flags.md", "deploy/helm/nsq/README.md"} <= names


def test_pages_are_in_list_of_all_pages():
    docs = ROOT / "docs"
    listed = set(re.findall(r"\]\(([\w/-]+\.md)\)", (docs / "README.md").read_text(encoding="utf-8")))

    assert {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - {"README.md"} == listed
