"""The pages of docs/reference are the output of scripts/reference.py, and every flag has a description."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

from nsqcore.options.options import specs

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)


@pytest.mark.parametrize("name", sorted(reference.PAGES))
def test_page_is_what_code_says(name):
    assert (reference.FOLDER / name).read_text(encoding="utf-8") == reference.page(name), (
        "run scripts/reference.py and commit what it writes"
    )


def test_example_of_config_file_has_keys_that_nsqd_knows():
    example = re.search(
        r"```toml\n(.*?)```", (reference.FOLDER / "flags.md").read_text(encoding="utf-8"), re.DOTALL
    )
    given = tomllib.loads(example[1])
    kinds = {spec.key: spec.kind for spec in specs(reference.DAEMONS["nsqd"])}

    assert len(given) == 6
    for key, value in given.items():
        kinds[key].from_toml(value)


def test_config_file_for_machine_has_keys_that_nsqd_knows():
    page = (ROOT / "docs" / "on-a-machine.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    kinds = {spec.key: spec.kind for spec in specs(reference.DAEMONS["nsqd"])}

    for key, value in tomllib.loads(example).items():
        kinds[key].from_toml(value)


def test_flags_have_descriptions():
    without = [
        (program, spec.flag)
        for program, options in (reference.DAEMONS | reference.TOOLS).items()
        for spec in specs(options)
        if not spec.help
    ]

    assert not without


def test_page_of_errors_knows_every_code():
    assert sorted(reference.CURES) == sorted(reference.codes())


def test_page_of_environment_knows_every_variable_that_is_read():
    assert reference.variables_read() == set(reference.VARIABLES)
