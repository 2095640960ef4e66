import pytest

from nsqd.replication.serving import AskingKeepers, CopyPhase, Serving

SECOND = 1_000_000_000
AFTER = 30 * SECOND
ASK = 2 * SECOND


def test_a_copy_is_carried_when_its_home_was_gone_for_so_long():
    copy = Serving(1, AFTER, 0)
    copy.home_came()
    copy.home_went(100)

    assert not copy.should_carry(100 + AFTER - 1)
    assert copy.should_carry(100 + AFTER)


def test_a_home_that_is_back_in_time_was_never_missed():
    copy = Serving(1, AFTER, 0)
    copy.home_came()
    copy.home_went(100)
    copy.home_came()

    assert not copy.should_carry(1000 * AFTER)


def test_a_keeper_that_has_just_started_waits_for_the_home_as_long():
    copy = Serving(1, AFTER, 500)

    assert not copy.should_carry(500 + AFTER - 1)
    assert copy.should_carry(500 + AFTER)


def test_a_second_word_that_the_home_is_gone_does_not_begin_the_wait_again():
    copy = Serving(1, AFTER, 0)
    copy.home_came()
    copy.home_went(100)
    copy.home_went(AFTER)

    assert copy.should_carry(100 + AFTER)


def test_a_home_that_goes_again_while_it_returns_is_carried_again():
    copy = Serving(1, AFTER, 0)
    copy.go(CopyPhase.CARRIED)
    copy.home_came()
    copy.go(CopyPhase.RETURNING)
    copy.home_went(50)

    copy.go(CopyPhase.CARRIED)

    assert copy.phase is CopyPhase.CARRIED


@pytest.mark.parametrize("phase", [CopyPhase.CARRIED, CopyPhase.RETURNING])
def test_a_copy_that_is_recovered_is_not_removed(phase):
    copy = Serving(1, AFTER, 0)
    copy.go(CopyPhase.CARRIED)
    if phase is CopyPhase.RETURNING:
        copy.go(phase)

    with pytest.raises(AssertionError, match="cannot be gone"):
        copy.go(CopyPhase.GONE)


def test_a_stale_copy_is_looked_into_though_its_home_is_there():
    copy = Serving(1, AFTER, 0, stale=True)
    copy.home_came()

    assert copy.should_carry(AFTER)


def test_what_is_old_waits_until_all_keepers_have_answered():
    asking = AskingKeepers(["a", "b"], ASK, 0)
    asking.answered("a")
    assert not asking.is_over(1)

    asking.answered("b")

    assert asking.is_over(1)


def test_a_keeper_that_does_not_answer_is_waited_for_no_longer_than_that():
    asking = AskingKeepers(["a"], ASK, 0)

    assert not asking.is_over(ASK - 1)
    assert asking.is_over(ASK)


def test_a_home_without_keepers_waits_for_nobody():
    assert AskingKeepers([], ASK, 0).is_over(0)
