"""The ``nsq_to_nsq`` command."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

from nsqclient import Consumer
from nsqcore.service.options import parse
from nsqtools.consumers import running
from nsqtools.nsq_to_nsq.copying import Copying
from nsqtools.nsq_to_nsq.options import ToNsqdOptions
from nsqtools.options import client_config
from nsqtools.process import run, say
from nsqtools.timed import Timed

PROGRAM: Final = "nsq_to_nsq"


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(ToNsqdOptions, PROGRAM, sys.argv[1:] if argv is None else argv)
    return run(lambda stop: copy_all(options, stop))


async def copy_all(options: ToNsqdOptions, stop: asyncio.Event) -> None:
    """Copy messages until somebody stops it."""
    destinations = tuple(dict.fromkeys(options.destination_nsqd_tcp_address))
    copying = Copying(
        destinations,
        options.mode,
        client_config(PROGRAM, options.producer_opt, headers=True),
        options.filter,
        Timed(destinations, options.status_every, say),
        asyncio.get_running_loop().time,
    )
    consumers = [
        Consumer(
            topic,
            options.channel,
            copying.handler(options.destination_topic or topic),
            nsqd_addresses=options.nsqd_tcp_address,
            lookupd_addresses=options.lookupd_http_address,
            config=options.consumer_config(PROGRAM, headers=True),
            auto_answer=False,
        )
        for topic in dict.fromkeys(options.topic)
    ]
    async with running(*consumers):
        await stop.wait()
    await copying.close()
