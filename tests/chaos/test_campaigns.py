"""A minute of the campaigns on the simulated disk; `make campaign` is the long run. docs/reliability.md"""

import pytest

from tests.campaign.campaigns import CAMPAIGNS

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "default"])
@pytest.mark.parametrize(
    ("campaign", "seed", "every", "states"),
    [
        ("power-cut", 23, 1, 500),
        ("power-cut", 35, 1, 300),
        ("kill", 23, 1, 150),
        ("kill", 35, 1, 100),
        ("calls", 4, 40, 20),
        ("reads", 2, 9, 10),
        ("bits", 3, 97, 30),
    ],
)
def test_no_promise_is_broken(campaign, seed, every, states, strict):
    result = CAMPAIGNS[campaign](seed, strict=strict, every=every)

    assert not result.violations, "\n\n".join(result.violations[:3])
    assert result.states >= states
