"""Publishers that wait for keepers, and when they are told."""

from nsqd.replication.waits import Wait, Waits


def waiting(need, may, unsettled="why not"):
    told = []
    wait = Wait(need, may, unsettled)
    wait.tells.append(told.append)
    return wait, told


def test_nobody_is_told_before_the_keeper_has_all_of_it():
    waits, (wait, told) = Waits(), waiting(1, 1)
    waits.add(100, wait, durable=False)

    waits.reached(99, 99)
    assert told == []
    waits.reached(100, 0)
    assert told == [""]


def test_what_is_to_be_durable_is_waited_for_until_it_is():
    waits, (wait, told) = Waits(), waiting(1, 1)
    waits.add(100, wait, durable=True)

    waits.reached(200, 99)
    assert told == []
    waits.reached(200, 100)
    assert told == [""]


def test_so_many_as_are_wanted_have_it():
    (one, two, three), (wait, told) = (Waits(), Waits(), Waits()), waiting(2, 3)
    for waits in (one, two, three):
        waits.add(1, wait, durable=False)

    one.reached(1, 1)
    assert told == []
    two.lose()
    assert told == []
    three.reached(1, 1)
    assert told == [""]


def test_too_few_are_left():
    (one, two), (wait, told) = (Waits(), Waits()), waiting(2, 2)
    for waits in (one, two):
        waits.add(1, wait, durable=False)

    one.lose()
    two.reached(1, 1)

    assert told == ["why not"]


def test_without_refusals_those_that_are_left_are_enough():
    (one, two), (wait, told) = (Waits(), Waits()), waiting(2, 2, "")
    for waits in (one, two):
        waits.add(1, wait, durable=False)

    one.lose()
    assert told == []
    assert wait.open
    two.reached(1, 1)

    assert told == [""]


def test_without_refusals_and_without_keepers_nothing_is_waited_for():
    (one, two), (wait, told) = (Waits(), Waits()), waiting(2, 2, "")
    for waits in (one, two):
        waits.add(1, wait, durable=False)

    one.lose()
    two.lose()

    assert told == [""]
    assert not wait.open


def test_whoever_is_told_is_told_once():
    (one, two), (wait, told) = (Waits(), Waits()), waiting(1, 2)
    for waits in (one, two):
        waits.add(1, wait, durable=False)

    one.reached(1, 1)
    two.reached(1, 1)
    two.lose()

    assert told == [""]
    assert not len(two)
