"""While a call blocks for long, nothing more is taken, because what is in hand would come again."""

import asyncio
import math

from nsqtools.flow_control import FlowControl
from tests.support.waiting import eventually


class Reading:
    def __init__(self, msg_timeout):
        self.msg_timeout = msg_timeout
        self.told = []

    def change_max_in_flight(self, max_in_flight):
        self.told.append(max_in_flight)


def now():
    return asyncio.get_running_loop().time()


async def test_call_that_is_quick_changes_nothing():
    reading = Reading(msg_timeout=3600)
    flow = FlowControl([reading], 200)
    assert await flow.during(asyncio.sleep(0, "done"), now()) == "done"
    flow.resume()

    assert reading.told == []


async def test_call_that_outlasts_message_timeout_stops_all_consumers_until_resumed():
    readings = [Reading(msg_timeout=0.01), Reading(msg_timeout=3600)]
    flow = FlowControl(readings, 200)
    end = asyncio.Event()
    calling = asyncio.create_task(flow.during(end.wait(), now()))
    await eventually(lambda: all(one.told == [0] for one in readings), "they are stopped")
    end.set()
    await calling
    flow.resume()

    assert [one.told for one in readings] == [[0, 200], [0, 200]]


async def test_time_counts_from_oldest_message_not_from_call():
    reading = Reading(msg_timeout=3600)
    await FlowControl([reading], 200).during(asyncio.sleep(0), now() - 3000)

    assert reading.told == [0]


async def test_nsqd_that_is_found_while_call_blocks_has_its_own_time_out():
    reading = Reading(msg_timeout=math.inf)  # there is no nsqd
    end = asyncio.Event()
    calling = asyncio.create_task(FlowControl([reading], 200).during(end.wait(), now()))
    await asyncio.sleep(0)
    reading.msg_timeout = 0.01
    await eventually(lambda: reading.told == [0], "it is stopped")
    end.set()
    await calling


async def test_lower_limit_holds_immediately_or_after_stall():
    reading = Reading(msg_timeout=3600)
    flow = FlowControl([reading], 200)
    flow.limit(20)
    await flow.during(asyncio.sleep(0), now() - 3600)
    flow.limit(10)
    flow.resume()

    assert reading.told == [20, 0, 10]
