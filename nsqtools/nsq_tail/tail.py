"""Prints messages as they arrive, until enough are printed or it is stopped."""

import asyncio
import random

from nsqclient import Consumer
from nsqcore.process.output import write_all
from nsqtools.blocking import BlockingThread
from nsqtools.consumers import running
from nsqtools.flow_control import FlowControl
from nsqtools.nsq_tail.options import TailOptions
from nsqtools.nsq_tail.printer import Printer
from nsqtools.process import log_line


async def tail(options: TailOptions, stop: asyncio.Event) -> None:
    """Print messages until ``-n`` of them are printed or ``stop`` is set."""
    stdout = BlockingThread("stdout")
    consumers: list[Consumer] = []
    max_in_flight = min(options.max_in_flight, options.n) if options.n > 0 else options.max_in_flight
    printer = Printer(
        lambda data: stdout.run(lambda: write_all(data)),
        options.n,
        FlowControl(consumers, max_in_flight),
        print_topic=options.print_topic,
        print_headers=options.headers,
    )
    channel = options.channel or f"tail{random.randrange(1_000_000):06d}#ephemeral"
    for topic in dict.fromkeys(options.topic):
        log_line(f"Adding consumer for topic: {topic}")
        consumers.append(
            options.consumer(
                topic,
                channel,
                printer.handler(topic),
                headers=options.headers,
                max_in_flight=max_in_flight,
                auto_answer=False,
            )
        )
    printing = asyncio.create_task(printer.run())
    stopping = asyncio.create_task(stop.wait())
    async with running(*consumers):
        await asyncio.wait({printing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if printing.done():
            printing.result()  # a closed pipe raises here; no message is finished unprinted
            printer.requeue_pending()
        else:
            # Print the messages that it has. If that fails, or -n is reached, the others are not needed.
            printing.add_done_callback(lambda done: None if done.cancelled() else printer.requeue_pending())
    stopping.cancel()
    if printing.done():
        printing.result()
    printing.cancel()
