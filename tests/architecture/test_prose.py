"""scripts/prose.py finds the words and sentences that pages and labels must not have, and nothing in ours."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("prose", ROOT / "scripts" / "prose.py")
prose = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(prose)


@pytest.fixture
def problems(tmp_path):
    def found(text, name="page.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return prose.problems(path, tmp_path)

    return found


def test_pages_and_labels_of_tree_have_no_problem(capsys):
    assert prose.main() == 0, capsys.readouterr().out


@pytest.mark.parametrize("word", ["nobody", "Meanwhile", "at once", "keepers", "hand-over", "owes"])
def test_word_that_glossary_replaces_is_named_with_its_line(problems, word):
    (found,) = problems(f"# Title\n\nOne line.\nHere is {word} to read.\n")

    assert found.startswith(f"page.md:4: {word!r}: ")


def test_code_links_and_changelogs_are_not_checked_for_words(problems):
    text = "`owed`, [a page](trouble.md), ![figures](a.png)\n\n```\nnobody\n```\n"

    assert problems(text) == []
    assert problems("nobody\n", "CHANGELOG.md") == []


def test_label_of_template_is_checked_and_its_markup_is_not(problems):
    text = '<p class="trouble">{{ figures }}</p>\n<p>Nobody consumes it.</p>\n'

    assert problems(text, "page.html") == ["page.html:2: 'Nobody': name the subject"]


def test_sentence_above_35_words_is_named_in_user_pages_only(problems):
    long = "word " * 35 + "end.\n"

    assert problems("Short.\n\n" + long) == ["page.md:3: a sentence of 36 words"]
    assert problems("word " * 34 + "end. " + "word " * 34 + "end.\n") == []
    assert problems(long, "docs/reference/flags.md") == []


def test_items_of_list_and_cells_of_table_are_sentences_of_their_own(problems):
    half = "word " * 20

    assert problems(f"- {half}\n- {half}\n\n| {half} | {half} |\n") == []


def test_names_of_tests_have_at_most_80_characters():
    files = (ROOT / "tests").rglob("test_*.py")

    assert [name for file in files for name in re.findall(r"def (test_\w{76,})", file.read_text())] == []
