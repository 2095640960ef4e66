from nsqadmin.stats.groups import grouped, heats
from tests.support.records import consumer


def test_groups_with_silent_connections_come_first():
    groups = grouped(
        [
            ("many", consumer()),
            ("many", consumer()),
            ("stuck", consumer(in_flight=3, silent_s=60.0)),
            ("one", consumer()),
            # With nothing in flight it does not count as silent.
            ("one", consumer(silent_s=60.0)),
        ]
    )

    assert [(one.name, one.connections, one.silent) for one in groups] == [
        ("stuck", 1, 1),
        ("many", 2, 0),
        ("one", 2, 0),
    ]
    assert (groups[0].in_flight, groups[1].ready, groups[1].rate) == (3, 2, 2.0)


def test_rate_of_group_is_unknown_if_a_part_is():
    (group,) = grouped([("a", consumer(rate=None)), ("a", consumer())])

    assert group.rate is None


def test_heat_follows_backlog_of_node():
    assert heats([]) == []
    assert heats([0, 0]) == [0, 0]
    assert heats([0, 1, 1000, 1_000_000]) == [0, 1, 3, 5]


def test_heat_of_negative_depth_is_zero():
    assert heats([-1, -(2**63), 1000]) == [0, 0, 5]
    assert heats([-5]) == [0]
