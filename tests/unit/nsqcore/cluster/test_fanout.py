import asyncio

import pytest

from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.fanout import Partial, call_all


async def answer(target):
    if target < 0:
        raise NodeError("GET", "http://x/", str(target), "refused")
    return target * 10


async def test_answers_keep_order_of_targets_and_errors_are_kept_beside_them():
    found = await call_all([1, -2, 3], answer)

    assert found.value == [(1, 10), (3, 30)]
    assert [error.address for error in found.errors] == ["-2"]
    assert not found.failed


async def test_fanout_fails_only_if_all_nodes_fail():
    assert (await call_all([-1, -2], answer)).failed
    assert not (await call_all([], answer)).failed


async def test_error_that_is_no_failure_of_node_is_not_swallowed():
    async def broken(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await call_all([1], broken)


async def test_fanout_limits_concurrent_requests():
    running = most = 0

    async def busy(target):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return await answer(target)

    found = await call_all(range(-1, 20), busy, at_once=3)

    assert most == 3
    assert [value for _, value in found.value] == [10 * target for target in range(20)]
    assert len(found.errors) == 1


def test_changed_value_keeps_its_errors():
    error = NodeError("GET", "http://x/", "x", "refused")

    assert Partial([1], (error,), 2).map(len) == Partial(1, (error,), 2)
