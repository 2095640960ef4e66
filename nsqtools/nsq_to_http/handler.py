"""Consumes messages and sends each as a request, until ``nsq_to_http`` is stopped."""

import asyncio
import random

from nsqclient import Message
from nsqclient.wire.durations import SECOND
from nsqtools.consumers import running
from nsqtools.nsq_to_http.options import ToHttpOptions
from nsqtools.nsq_to_http.route import Route
from nsqtools.nsq_to_http.sender import Sender, SendFailed, forwarded_headers
from nsqtools.process import log_line


async def send_all(options: ToHttpOptions, stop: asyncio.Event) -> None:
    """Send messages until ``stop`` is set; each is finished when an address has accepted it."""
    loop = asyncio.get_running_loop()
    async with Sender(
        options.content_type if options.post else None,
        options.headers,
        connect_timeout=options.http_client_connect_timeout / SECOND,
        request_timeout=options.http_client_request_timeout / SECOND,
    ) as sender:
        handler = Handler(Route(options, sender, loop.time), options.sample)
        consumer = options.consumer(
            options.topic,
            options.channel,
            handler.handle,
            headers=True,
            # No more can be in flight. Without this the client would treat -max-in-flight=1, its own default,
            # as not given, and raise it to -n.
            concurrency=min(options.n, options.max_in_flight),
            # A request to an address may take longer than the message timeout.
            auto_touch=True,
        )
        async with running(consumer):
            await stop.wait()


class Handler:
    """Sends a sample of the messages; after a failure the message is requeued and the consumer backs off."""

    def __init__(self, route: Route, sample: float) -> None:
        self._route = route
        self._sample = sample

    async def handle(self, delivery: Message) -> None:
        if self._sample < 1 and random.random() >= self._sample:
            return
        try:
            await self._route.send(delivery.body, forwarded_headers(delivery.headers))
        except SendFailed as failure:
            log_line(f"ERROR: message {delivery.id.decode()} attempt {delivery.attempts} not sent: {failure}")
            delivery.requeue(None, backoff=True)
