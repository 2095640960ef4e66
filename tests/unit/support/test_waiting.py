"""Conditions that tests wait for."""

import asyncio

import pytest

from tests.support.waiting import eventually, wait_until


def test_a_coroutine_that_looks_up_what_is_not_there_yet_is_asked_again():
    grown: list[int] = []

    async def condition() -> int:
        grown.append(len(grown) + 1)
        return grown[2]

    assert asyncio.run(eventually(condition, "there are three")) == 3


@pytest.mark.parametrize("raised", [IndexError, KeyError, StopIteration, FileNotFoundError, "unpacks"])
def test_each_way_to_look_up_what_is_not_there_yet_is_known(raised):
    looks: list[int] = []

    def condition() -> bool:
        looks.append(1)
        if len(looks) < 2:
            if raised != "unpacks":
                raise raised
            (_,) = []
        return True

    assert wait_until(condition, "it is there")
    looks.clear()
    assert asyncio.run(eventually(condition, "it is there"))


def test_what_never_comes_is_named_with_what_was_missing():
    def condition() -> int:
        return {}["keeps"]

    with pytest.raises(AssertionError, match="waited 0 s in vain until it has a copy") as failed:
        wait_until(condition, "it has a copy", seconds=0)
    assert isinstance(failed.value.__cause__, KeyError)
    with pytest.raises(AssertionError, match="waited 0 s in vain until it has a copy") as failed:
        asyncio.run(eventually(condition, "it has a copy", seconds=0))
    assert isinstance(failed.value.__cause__, KeyError)


def test_any_other_error_of_a_condition_ends_the_wait_at_once():
    def condition() -> int:
        raise error

    for error in (OSError("refused"), ValueError("an answer that is not JSON")):
        with pytest.raises(type(error), match=str(error)):
            wait_until(condition, "it answers")
        with pytest.raises(type(error), match=str(error)):
            asyncio.run(eventually(condition, "it answers"))
