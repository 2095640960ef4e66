"""All mutations, by the room whose code they change."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation
from tests.campaign.mutations.of_engine import ENGINE
from tests.campaign.mutations.of_log import LOG
from tests.campaign.mutations.of_storage import STORAGE

MUTATIONS: Final[tuple[Mutation, ...]] = (*LOG, *STORAGE, *ENGINE)
