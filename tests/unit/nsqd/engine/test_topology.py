import pytest

from nsqd.engine.identity import ELSEWHERE, SAME_REGION, SAME_ZONE, Identity, nearness
from nsqd.engine.limits import Limits

HERE = Limits(topology_zone="z1", topology_region="r1")


@pytest.mark.parametrize(
    ("zone", "region", "expected"),
    [
        ("z1", "r1", SAME_ZONE),
        ("z1", "r2", SAME_ZONE),  # as in the original: the zone alone decides
        ("z2", "r1", SAME_REGION),
        ("z2", "r2", ELSEWHERE),
        ("", "", ELSEWHERE),
    ],
)
def test_client_is_as_near_as_it_says(zone, region, expected):
    assert nearness(HERE, Identity(topology_zone=zone, topology_region=region)) == expected


def test_nsqd_that_knows_no_place_is_near_nobody():
    assert nearness(Limits(), Identity()) == ELSEWHERE
    assert nearness(Limits(topology_region="r"), Identity(topology_region="r")) == SAME_REGION
