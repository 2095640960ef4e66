import asyncio

from nsqcore.http.api import json_reply, paced_json_reply
from nsqcore.http.pace import Pace


async def turns_during(work):
    """How often another task ran while *work* ran."""
    task, turns = asyncio.ensure_future(work), 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


async def test_pace_lets_other_tasks_run():
    async def work(pieces):
        pace = Pace(10)
        for _ in range(pieces):
            await pace.done()

    assert await turns_during(work(1000)) >= 100
    assert await turns_during(work(9)) <= 2


async def test_large_piece_counts_for_many():
    async def work():
        pace = Pace(10)
        for _ in range(50):
            await pace.done(10)

    assert await turns_during(work()) >= 50


async def test_long_list_is_written_in_pieces_to_the_same_json():
    value = {"a": None, "b": [{"x": n, "y": "<&>"} for n in range(1000)], "c": [], "d": {"e": [1]}}

    assert (await paced_json_reply(value)).body == json_reply(value).body
    assert await turns_during(paced_json_reply(value)) >= 20
