"""All mutations, by the part of the project that they change."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation
from tests.campaign.mutations.of_admin import ADMIN
from tests.campaign.mutations.of_carried import CARRIED
from tests.campaign.mutations.of_carriers import CARRIERS
from tests.campaign.mutations.of_client import CLIENT
from tests.campaign.mutations.of_copies import COPIES
from tests.campaign.mutations.of_engine import ENGINE
from tests.campaign.mutations.of_log import LOG
from tests.campaign.mutations.of_looking import LOOKING
from tests.campaign.mutations.of_lookupd import LOOKUPD
from tests.campaign.mutations.of_policies import POLICIES
from tests.campaign.mutations.of_replay import REPLAY
from tests.campaign.mutations.of_service import SERVICE
from tests.campaign.mutations.of_storage import STORAGE
from tests.campaign.mutations.of_tools import TOOLS
from tests.campaign.mutations.of_waiting import WAITING

# Groups by name: mutations of promises about messages, and all mutations outside the engine.
GROUPS: Final = {
    "inside": (*LOG, *STORAGE, *ENGINE, *WAITING, *POLICIES, *REPLAY, *LOOKING, *COPIES, *CARRIED, *CARRIERS),
    "outside": (*SERVICE, *LOOKUPD, *CLIENT, *ADMIN, *TOOLS),
}
MUTATIONS: Final[tuple[Mutation, ...]] = tuple(one for group in GROUPS.values() for one in group)
