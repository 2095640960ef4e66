import pytest

from nsqcore.cluster.models import NodeInfo, NodeStats, read_stats
from nsqcore.cluster.numbers import clamped, int64

MOST, LEAST = 2**63 - 1, -(2**63)


def test_sum_that_is_too_large_is_nearest_number_of_64_bits():
    assert [clamped(number) for number in (0, MOST, LEAST)] == [0, MOST, LEAST]
    assert [clamped(number) for number in (MOST + 1, 10**40, LEAST - 1)] == [MOST, MOST, LEAST]


@pytest.mark.parametrize("value", [MOST + 1, LEAST - 1, 10**400, 1.5, "7", None, float("nan")])
def test_integer_beyond_64_bits_is_refused(value):
    with pytest.raises(ValueError, match="Expected"):
        int64(value)


@pytest.mark.parametrize("number", [MOST, LEAST, -1])
def test_counts_that_go_can_send_are_read(number):
    stats = read_stats(b'{"start_time": %d, "topics": [{"depth": %d}]}' % (number, number))

    assert (stats.start_time, stats.topics[0].depth) == (number, number)


@pytest.mark.parametrize("number", [MOST + 1, 2**64, 10**30, LEAST - 1])
def test_count_that_go_cannot_send_is_refused_with_its_place(number):
    with pytest.raises(ValueError, match=r"depth"):
        read_stats(b'{"topics": [{"depth": %d}]}' % number)
    # This path is taken if a field is null.
    with pytest.raises(ValueError, match=r"depth"):
        read_stats(b'{"version": null, "topics": [{"depth": %d}]}' % number)
    with pytest.raises(ValueError, match=r"start_time"):
        NodeStats.from_json({"start_time": number})


@pytest.mark.parametrize("port", [MOST + 1, 10**400, 1e300, float("nan")])
def test_port_that_no_nsqlookupd_can_list_is_refused(port):
    with pytest.raises(ValueError, match=r"Expected|cannot convert"):
        NodeInfo.from_json({"http_port": port})
