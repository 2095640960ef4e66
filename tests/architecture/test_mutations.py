"""The mutations of the log and the storage fit the source."""

from pathlib import Path

import pytest

from tests.campaign.mutations.mutation import Mutation
from tests.campaign.mutations.of_log import LOG
from tests.campaign.mutations.of_storage import STORAGE

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", [*LOG, *STORAGE], ids=lambda one: one.name)
def test_mutation_names_text_and_tests_that_exist(mutation: Mutation):
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    paths = [command.split()[0] for command in mutation.caught_by if command.startswith("tests/")]
    assert all((ROOT / path).exists() for path in paths)
