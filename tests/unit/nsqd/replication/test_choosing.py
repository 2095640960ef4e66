from collections import Counter

import pytest

from nsqd.replication.choosing import Appointed, Appointments, Candidate, KeeperPatience, choose, replaced

MINUTE = 60_000_000_000
HOME = Candidate("home:4150", "00", "z1", "h1")


def nodes(count, zones=1):
    return [Candidate(f"n{n}:4150", f"id{n}", f"z{n % zones}", f"host{n}") for n in range(count)]


def addresses(found):
    return [one.address for one in found]


def test_a_home_is_no_keeper_of_its_own():
    assert choose(HOME, [HOME, Candidate("other-name:4150", "00")], 2) == []


def test_another_zone_comes_first_then_another_host():
    same_host = Candidate("a:4150", "a", "z1", "h1")
    same_zone = Candidate("b:4150", "b", "z1", "h2")
    elsewhere = Candidate("c:4150", "c", "z2", "h3")

    assert choose(HOME, [same_host, same_zone, elsewhere], 3) == [elsewhere, same_zone, same_host]


def test_keepers_are_not_in_one_zone_either():
    candidates = [Candidate(f"{n}:4150", str(n), zone, f"h{n}") for n, zone in enumerate(["z2"] * 5 + ["z3"])]

    assert {one.zone for one in choose(HOME, candidates, 2)} == {"z2", "z3"}


def test_a_node_without_a_zone_is_as_good_as_one_elsewhere():
    assert (
        choose(HOME, [Candidate("a:4150", "a", "z1", "h2"), Candidate("b:4150", "b")], 1)[0].address
        == "b:4150"
    )


def test_the_choice_does_not_depend_on_the_order_of_the_answer():
    found = nodes(20, zones=3)

    assert choose(HOME, found, 3) == choose(HOME, found[::-1], 3)


def test_homes_spread_over_the_keepers():
    found = nodes(10)
    load = Counter(choose(Candidate(f"h{n}:1", f"h{n}"), found, 1)[0].address for n in range(2000))

    assert set(load) == set(addresses(found))
    assert max(load.values()) < 300


def test_a_node_that_joins_changes_the_choice_of_few():
    before, after = nodes(10), nodes(11)
    homes = [Candidate(f"h{n}:1", f"h{n}") for n in range(1000)]
    changed = [home for home in homes if choose(home, before, 1) != choose(home, after, 1)]

    assert 40 < len(changed) < 160
    assert {choose(home, after, 1)[0].address for home in changed} == {"n10:4150"}


def one_of(candidates, count=1, now=0, appointments=None, patience=None):
    appointments = appointments or Appointments()
    patience = patience or KeeperPatience(5 * MINUTE)
    replaced(HOME, candidates, count, appointments, patience, now)
    return appointments, patience


def test_whoever_was_appointed_stays_though_a_better_one_joins():
    appointments, patience = one_of(nodes(3))
    (before,) = appointments.current

    one_of(nodes(50), appointments=appointments, patience=patience)

    assert appointments.current == [before]


def test_a_keeper_that_is_gone_for_too_long_is_replaced_and_remembered():
    appointments, patience = one_of(nodes(3))
    (old,) = appointments.current
    patience.away(old.address, 0)
    patience.away(old.address, 4 * MINUTE)

    one_of(nodes(3), 1, 5 * MINUTE - 1, appointments, patience)
    assert appointments.current == [old]

    one_of(nodes(3), 1, 5 * MINUTE, appointments, patience)
    (new,) = appointments.current
    assert new.address != old.address
    assert (new.number, appointments.former) == (2, [old])


def test_a_keeper_that_is_gone_stays_when_there_is_no_other():
    appointments, patience = one_of(nodes(1))
    (old,) = appointments.current
    patience.away(old.address, 0)

    one_of(nodes(1), 1, 60 * MINUTE, appointments, patience)

    assert appointments.current == [old]


def test_one_that_refuses_is_replaced_at_once_and_asked_again_later():
    appointments, patience = one_of(nodes(2))
    (old,) = appointments.current
    patience.refused(old.address, 0)

    one_of(nodes(2), 1, 1, appointments, patience)
    (new,) = appointments.current
    assert new.address != old.address
    assert not patience.may_ask(old.address, MINUTE)
    assert patience.may_ask(old.address, 5 * MINUTE)


def test_that_one_refuses_is_news_once():
    patience = KeeperPatience(MINUTE)

    assert [patience.refused("a:1", now) for now in (0, 1, 2)] == [True, False, False]
    patience.linked("a:1")
    assert patience.refused("a:1", 3)


def test_fewer_copies_are_wanted():
    appointments, patience = one_of(nodes(5), 3)

    one_of(nodes(5), 1, 0, appointments, patience)

    assert (len(appointments.current), len(appointments.former)) == (1, 2)


def test_a_number_is_never_given_twice():
    appointments, _ = one_of(nodes(2))
    (old,) = appointments.current
    again = appointments.again(old)
    known = Appointments.from_json(appointments.to_json())

    assert (again.address, again.number) == (old.address, 2)
    assert known == appointments
    assert known.appoint(Candidate("x:1")).number == 3


def test_a_number_is_above_those_that_a_keeper_knows_of_a_home_that_has_forgotten_them():
    appointments, _ = one_of(nodes(1))

    assert appointments.again(appointments.current[0], 17).number == 18


def test_a_keeper_that_has_said_who_it_is_since_can_be_given_another_number():
    appointments, _ = one_of(nodes(1))
    (old,) = appointments.current
    appointments.current = [Appointed(old.number, old.address, "it said so")]

    again = appointments.again(old)

    assert appointments.current == [again]
    assert (again.number, appointments.former) == (2, [old])


def test_a_copy_that_is_gone_is_forgotten():
    appointments, _ = one_of(nodes(2))
    (old,) = appointments.current
    appointments.again(old)

    assert not appointments.forget_up_to("another:1", 9)
    assert not appointments.forget_up_to(old.address, old.number - 1)
    assert appointments.forget_up_to(old.address, old.number)

    assert appointments.former == []


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"last": 1, "current": [[1]], "former": []},
        {"last": 0, "current": [[1, "a", "b"]], "former": []},
    ],
)
def test_damaged_appointments_are_told(value):
    with pytest.raises(ValueError, match="damaged"):
        Appointments.from_json(value)


def test_one_that_was_away_for_too_long_may_be_appointed_again_when_it_was_seen_since():
    patience = KeeperPatience(100)
    patience.away("a:4150", 1000)

    assert [patience.may_ask("a:4150", now) for now in (1050, 1100, 1199, 1200, 1201)] == [
        True,
        False,
        False,
        True,
        True,
    ]
