"""The kinds of handlers that a consumer can have, and what happens to messages on which they fail."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from nsqclient import Config, Consumer, Fixed, Message, Retry
from nsqclient.testing import MemoryNsqd
from tests.support.client import CALM, IMPATIENT, SOON, channel, consumer_of, is_empty, publish
from tests.support.waiting import eventually


@pytest.mark.parametrize("is_added", [True, False])
async def test_handler_that_blocks_runs_in_threads(cluster, is_added):
    nsqd = cluster.nsqd()
    together = threading.Barrier(4)
    threads = set()

    def meet(_):
        threads.add(threading.get_ident())
        together.wait(10)

    await publish(nsqd, *[b"x"] * 8)
    settings = {"concurrency": 4, "in_threads": True}
    if is_added:
        consumer = consumer_of(nsqd, config=IMPATIENT, retry=SOON)
        consumer.add_handler(meet, **settings)
    else:
        consumer = consumer_of(nsqd, meet, config=IMPATIENT, retry=SOON, **settings)
    async with consumer:
        await eventually(lambda: is_empty(nsqd), "two times four have met")

    assert len(threads) == 4
    assert threading.get_ident() not in threads
    assert consumer.stats.finished == 8


async def test_message_can_be_touched_requeued_and_failed_in_thread(cluster):
    nsqd = cluster.nsqd()
    attempts = []

    def try_everything(delivery: Message) -> None:
        attempts.append(delivery.attempts)
        delivery.touch()
        if delivery.attempts == 1:
            delivery.requeue(0.01)
        elif delivery.attempts == 2:
            raise RuntimeError("not today")

    await publish(nsqd, b"x")
    consumer = consumer_of(nsqd, config=IMPATIENT, retry=SOON)
    consumer.add_handler(try_everything, in_threads=True)
    async with consumer:
        await eventually(lambda: len(attempts) == 3 and is_empty(nsqd), "the third attempt worked")

    assert attempts == [1, 2, 3]
    assert channel(nsqd)["requeue_count"] == 2


async def test_handlers_share_messages(cluster):
    nsqd = cluster.nsqd()
    both = asyncio.Barrier(2)

    async def one(_):
        await both.wait()

    async def another(_):
        await both.wait()

    await publish(nsqd, *[b"x"] * 10)
    consumer = consumer_of(nsqd, one, config=IMPATIENT, retry=SOON)
    consumer.add_handler(another)
    async with consumer:
        await eventually(lambda: is_empty(nsqd), "they met five times")


async def test_batch_is_handed_over_when_it_is_full_or_its_time_is_up(cluster):
    nsqd = cluster.nsqd()
    batches = []
    await publish(nsqd, *(b"%d" % n for n in range(25)))

    consumer = consumer_of(nsqd, config=Config(max_in_flight=100))
    consumer.add_batch_handler(lambda batch: batches.append([d.body for d in batch]), size=10, seconds=0.1)
    async with consumer:
        await eventually(lambda: is_empty(nsqd), "all are finished")

    assert max(len(batch) for batch in batches) == 10
    assert sorted(body for batch in batches for body in batch) == sorted(b"%d" % n for n in range(25))


async def test_batch_larger_than_may_be_in_flight_does_not_wait_for_more(cluster):
    nsqd = cluster.nsqd()
    batches = []
    await publish(nsqd, *[b"x"] * 9)

    consumer = consumer_of(nsqd, config=Config(max_in_flight=3))
    consumer.add_batch_handler(batches.append, size=1000, seconds=60)
    async with consumer:
        await eventually(lambda: is_empty(nsqd), "the wait was short")

    assert sum(len(batch) for batch in batches) == 9


async def test_failed_batch_is_redelivered_without_answered_messages(cluster):
    nsqd = cluster.nsqd()
    batches = []

    async def finish_one_and_fail(batch):
        batches.append(sorted(d.body for d in batch))
        if len(batches) == 1:
            next(d for d in batch if d.body == b"1").finish()
            raise RuntimeError("half done")

    await publish(nsqd, b"1", b"2", b"3")
    consumer = consumer_of(nsqd, config=IMPATIENT, retry=SOON)
    consumer.add_batch_handler(finish_one_and_fail, size=3, seconds=1)
    async with consumer:
        await eventually(lambda: len(batches) > 1 and is_empty(nsqd), "the rest is done")

    assert batches[0] == [b"1", b"2", b"3"]
    assert sorted(body for batch in batches[1:] for body in batch) == [b"2", b"3"]


async def test_slow_message_is_touched_automatically(cluster):
    nsqd = cluster.nsqd()
    attempts = []

    def work_longer_than_the_time_out(delivery):
        attempts.append(delivery.attempts)
        time.sleep(1.5)

    await publish(nsqd, b"1", b"2")
    consumer = consumer_of(nsqd, config=Config(msg_timeout=1, max_in_flight=2), auto_touch=True)
    consumer.add_handler(work_longer_than_the_time_out, in_threads=True)
    async with consumer:
        await eventually(lambda: len(attempts) == 2 and is_empty(nsqd), "both are finished", seconds=20)

    # The second message was also touched while it waited for the first.
    assert attempts == [1, 1]
    assert channel(nsqd)["timeout_count"] == 0


async def test_answer_with_backoff_slows_consumer_down_though_it_comes_late(cluster):
    nsqd = cluster.nsqd()
    held = []
    await publish(nsqd, b"1", b"2")

    async with consumer_of(nsqd, held.append, config=IMPATIENT, retry=SOON, auto_answer=False) as consumer:
        await eventually(lambda: len(held) == 2, "both are here")
        held[0].requeue(None, backoff=True)
        assert consumer.is_backing_off
        held[1].finish()
        await eventually(lambda: len(held) == 3, "the trial is here")
        held[2].finish()  # long after its handler has returned

        assert not consumer.is_backing_off
        await eventually(lambda: is_empty(nsqd), "all are finished")


async def test_giving_up_may_take_time_and_message_is_kept_until_it_worked(cluster):
    nsqd = cluster.nsqd()
    dead = []

    async def bury(delivery):
        dead.append(delivery.attempts)
        await asyncio.sleep(0)
        if len(dead) == 1:
            raise OSError("no room in the graveyard")

    def fail(_):
        raise RuntimeError("never")

    once = Retry(1, Fixed(0.01), backoff=False, then=bury)
    await publish(nsqd, b"poison")
    async with consumer_of(nsqd, fail, retry=once):
        await eventually(lambda: len(dead) == 2 and is_empty(nsqd), "it was buried")

    assert dead == [2, 3]


async def test_sample_rate_and_message_time_out_reach_nsqd(cluster):
    nsqd = cluster.nsqd()
    config = Config(sample_rate=37, client_id="me", topology_zone="z")
    async with consumer_of(nsqd, lambda _: None, config=config):
        [client] = channel(nsqd)["clients"]

    assert (client["sample_rate"], client["client_id"]) == (37, "me")


async def test_addresses_that_were_found_can_be_chosen_from(cluster):
    lookupd = cluster.nsqlookupd()
    nsqds = [cluster.nsqd(), cluster.nsqd()]
    for nsqd in nsqds:
        await publish(nsqd, b"x")
    wanted = nsqds[1].tcp_address
    often = Config(lookupd_poll_interval=0.1, max_in_flight=10)

    async with Consumer(
        "t",
        "c",
        lambda _: None,
        lookupd_addresses=[lookupd.http_address],
        config=often,
        choose=lambda found: [address for address in found if address == wanted],
    ) as consumer:
        await eventually(lambda: is_empty(nsqds[1]), "the wanted one was read")

        assert consumer.nsqd_addresses == [wanted]


@pytest.mark.parametrize("mistake", ["late handler", "no workers"])
async def test_mistakes_in_setting_up_are_refused(cluster, mistake):
    nsqd = cluster.nsqd()
    consumer = consumer_of(nsqd)
    if mistake == "no workers":
        with pytest.raises(ValueError, match="concurrency 0 is not positive"):
            consumer.add_handler(print, concurrency=0)
    else:
        consumer.add_handler(lambda _: None)
        async with consumer:
            with pytest.raises(RuntimeError, match="before the consumer is started"):
                consumer.add_handler(print)


async def test_finishing_from_any_thread_counts_message_out(cluster):
    nsqd = cluster.nsqd()
    held = []
    await publish(nsqd, *[b"x"] * 20)
    consumer = consumer_of(nsqd, config=IMPATIENT, retry=SOON, auto_answer=False)
    consumer.add_handler(held.append, in_threads=True)
    async with consumer:
        await eventually(lambda: len(held) == 20, "all are held")
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(Message.finish, held))
        await eventually(lambda: is_empty(nsqd), "all are finished")

        assert consumer.in_flight == 0


NO_DELAY = Retry(delay=Fixed(0))


class OfALibraryError(BaseException):
    """A BaseException, as some libraries raise for time-outs."""


def raising(error):
    def handle(_):
        raise error

    return handle


async def work(_):
    """A coroutine function, which no thread runs."""


# name -> (handler, whether only threads can get it, whether its message is finished, what the log says)
RESULTS = {
    "an error": (raising(ValueError("no")), False, False, "ValueError: no"),
    "an error of a library": (raising(OfALibraryError("no")), False, False, "OfALibraryError"),
    "an exit": (raising(SystemExit(1)), True, False, "SystemExit"),
    "an interrupt": (raising(KeyboardInterrupt()), True, False, "KeyboardInterrupt"),
    "the end of a generator": (raising(GeneratorExit()), True, False, "GeneratorExit"),
    "False": (lambda _: False, False, False, "the handler returned False"),
    "a coroutine": (lambda _: work(_), True, False, "a thread does not run it"),  # noqa: PLW0108 - the mistake
    "another value": (lambda _: 7, False, True, "the handler returned 7, which means nothing here"),
}
WAYS = ("on the loop", "in a thread", "in batches in a thread")


@pytest.mark.parametrize(
    ("result", "way"),
    [(result, way) for result in RESULTS for way in WAYS if way != "on the loop" or not RESULTS[result][1]],
)
async def test_handler_result_decides_about_message(memory_nsqd, caplog, result, way):
    handler, _, is_finished, said = RESULTS[result]
    memory_nsqd.publish("t", b"x")
    consumer = consumer_of(memory_nsqd, retry=Retry(delay=Fixed(600)))
    if way == "in batches in a thread":
        consumer.add_batch_handler(handler, size=1, seconds=1, in_threads=True)
    else:
        consumer.add_handler(handler, in_threads=way == "in a thread")
    async with consumer:
        await eventually(
            lambda: memory_nsqd.finished("t", "c") or memory_nsqd.requeued("t", "c"), "it is answered"
        )
        memory_nsqd.publish("t", b"y")
        await eventually(lambda: consumer.stats.received == 2 and not consumer.in_flight, "the next one is")

    assert memory_nsqd.finished("t", "c") == ([b"x", b"y"] if is_finished else [])
    assert said in caplog.text


def no_delay(_attempts):
    raise LookupError("no delay for this")


@pytest.mark.parametrize(
    "delay",
    [no_delay, lambda _: None, lambda _: -1, lambda _: float("nan"), lambda _: float("inf")],
    ids=["an error", "None", "negative", "nan", "inf"],
)
@pytest.mark.parametrize("way", ["one by one", "in batches", "in a thread", "in a loop"])
async def test_unusable_delay_costs_no_message(delay, way, caplog):
    handled = []

    def fail_on_bad(given):
        for message in given if isinstance(given, list) else [given]:
            if message.body == b"bad" and message.attempts == 1:
                raise ValueError("bad")
            handled.append(message.body)

    async def iterate(consumer):
        async for message in consumer:
            async with message.process():
                fail_on_bad(message)

    calls = []

    def works_once(attempts):  # when Retry checks it
        calls.append(attempts)
        return 0 if len(calls) == 1 else delay(attempts)

    retry = Retry(delay=works_once)
    with MemoryNsqd() as nsqd:
        nsqd.publish("t", b"bad")
        consumer = consumer_of(nsqd, config=CALM, retry=retry)
        if way == "in batches":
            consumer.add_batch_handler(fail_on_bad, size=1)
        elif way != "in a loop":
            consumer.add_handler(fail_on_bad, in_threads=way == "in a thread")
        async with consumer:
            looping = asyncio.create_task(iterate(consumer)) if way == "in a loop" else None
            await eventually(lambda: consumer.stats.requeued == 1, "the bad one is put off")
            nsqd.publish("t", b"good")
            await eventually(lambda: handled == [b"good"], "the next is handled")
            nsqd.advance(600)
            await eventually(lambda: handled == [b"good", b"bad"], "the bad one came again")
        if looping is not None:
            await looping

    assert "the delay after attempt 1 failed" in caplog.text


async def test_consumer_runs_on_without_backoff_when_its_strategy_fails(caplog):
    handled = []

    def fail_at_first(message):
        if message.attempts == 1 and message.body == b"1":
            raise ValueError
        handled.append(message.body)

    config = Config(backoff_multiplier=0.01, max_backoff_duration=0.1, backoff_strategy=no_delay)
    with MemoryNsqd() as nsqd:
        nsqd.publish("t", b"1")
        async with consumer_of(nsqd, fail_at_first, config=config, retry=NO_DELAY) as consumer:
            await eventually(lambda: b"1" in handled, "it came again")
            nsqd.publish("t", b"2")  # if the first came again before it was stopped, this one is the trial
            await eventually(lambda: not consumer.is_backing_off, "it runs at full speed")

    assert "the back-off strategy failed" in caplog.text


async def test_choosing_that_fails_is_tried_again_in_the_next_round(caplog):
    calls = []

    def fail_at_first(found):
        calls.append(found)
        if len(calls) == 1:
            raise IndexError("cannot choose from an empty sequence")
        yield from found

    often = Config(lookupd_poll_interval=0.05, max_in_flight=10)
    handled = []
    with MemoryNsqd() as nsqd, MemoryNsqd() as other:
        other.publish("t", b"1")
        consumer = consumer_of(
            nsqd, lambda message: handled.append(message.body), config=often, choose=fail_at_first
        )
        async with consumer:
            consumer._subscriptions.addresses.add(other.address)
            await eventually(lambda: handled == [b"1"], "the next round has found it")

    assert "choose failed" in caplog.text


# --- slow handlers


async def test_handler_slower_than_msg_timeout_is_reported_and_not_counted(cluster, caplog):
    nsqd = cluster.nsqd()
    await publish(nsqd, b"slow")
    attempts = []

    async def handle(message):
        attempts.append(message.attempts)
        if message.attempts == 1:
            await asyncio.sleep(1.6)

    config = Config(msg_timeout=1)
    async with consumer_of(nsqd, handle, config=config) as consumer:
        await eventually(lambda: len(attempts) == 2 and is_empty(nsqd), "it was delivered again")
        await eventually(lambda: "auto_touch=True" in caplog.text, "the refused answer is reported")

        assert consumer.stats.received == 2
        assert consumer.stats.finished == 1
    [warning] = [record.getMessage() for record in caplog.records if "auto_touch" in record.getMessage()]
    assert warning.startswith(f"t/c ({nsqd.tcp_address}): message ")
    assert "longer than msg_timeout (1 s)" in warning


@pytest.mark.parametrize("debug", [True, False])
async def test_plain_handler_that_blocks_loop_is_reported_in_debug_mode(caplog, debug):
    loop = asyncio.get_running_loop()
    loop.set_debug(debug)
    try:
        with MemoryNsqd() as nsqd:
            nsqd.publish("t", b"x")
            async with consumer_of(nsqd, lambda _: time.sleep(0.2)) as consumer:
                await eventually(lambda: consumer.stats.finished == 1, "it is finished")
    finally:
        loop.set_debug(False)

    assert ("use in_threads=True" in caplog.text) is debug
