"""Publishes to one or several nsqd; each publish ends with a confirmation or raises an error."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Self

from nsqclient._config import Config
from nsqclient._dispatch import Dispatch
from nsqclient._middleware import Middleware, Publication
from nsqclient._publish_chain import PublishChain
from nsqclient._requests import Answer, Body, Confirmation, Publish, all_bytes, awaitable, body_bytes
from nsqclient.wire import commands
from nsqclient.wire.address import address_list
from nsqclient.wire.durations import seconds_of
from nsqclient.wire.frames import OK

log = logging.getLogger("nsqclient")


class Producer:
    """Publishes each message to the first of its nsqd that takes it.

    It connects when it is first used. A publish returns when nsqd has answered OK. When the connection breaks
    before that, the message is sent again, to the next address or after a reconnect, and may then exist
    twice. With ``retry_seconds`` a publish is retried for that long before it raises; otherwise each address
    is tried once. A message that nsqd rejects as invalid (``ProtocolError``: bad topic, too big) is never
    sent again.

    With fixed addresses it stays with the one that works; with ``spread`` it uses all of them in turn and
    skips those that are slow to answer. With ``lookupd_addresses`` it spreads over all nsqd that nsqlookupd
    knows, including those that join later. When an nsqd is silent for ``publish_timeout`` seconds, the
    producer disconnects from it and sends the unconfirmed messages to another.

    While no nsqd is reachable it keeps at most ``max_unconfirmed`` messages and ``max_unconfirmed_bytes``
    bytes; further publishes wait. *middlewares* are called around every publish.
    """

    def __init__(
        self,
        nsqd_addresses: Sequence[str] | str = (),
        *,
        lookupd_addresses: Sequence[str] | str = (),
        config: Config | None = None,
        retry_seconds: float | timedelta = 0,
        spread: bool = False,
        publish_timeout: float | timedelta = 10,
        max_unconfirmed: int = 10_000,
        max_unconfirmed_bytes: int = 32 << 20,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        nsqds, lookupds = address_list(nsqd_addresses), address_list(lookupd_addresses)
        if not nsqds and not lookupds:
            raise ValueError("a producer needs addresses of nsqd or of nsqlookupd")
        if max_unconfirmed < 1 or max_unconfirmed_bytes < 1:
            raise ValueError("max_unconfirmed and max_unconfirmed_bytes have to be positive")
        seconds = seconds_of(publish_timeout)
        if seconds <= 0:
            raise ValueError(f"publish_timeout {seconds:g} is not positive")
        self.config = config or Config()
        self._dispatch = Dispatch(
            self.config,
            nsqds=nsqds,
            lookupds=lookupds,
            spread=spread,
            publish_timeout=seconds,
            retry_seconds=seconds_of(retry_seconds),
            max_messages=max_unconfirmed,
            max_bytes=max_unconfirmed_bytes,
        )
        # Read for every message.
        self._links, self._backlog, self._queue = (
            self._dispatch.links,
            self._dispatch.backlog,
            self._dispatch.queue,
        )
        self._chain = (
            PublishChain(self._dispatch, middlewares, with_headers=self.config.headers)
            if middlewares
            else None
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Producer {', '.join(self._links.roster.addresses)} {self.unconfirmed} unconfirmed>"

    @property
    def nsqd_address(self) -> str:
        """The nsqd that gets the next message; empty while none is known."""
        return (
            self._links.current.address
            if self._links.current is not None
            else self._links.roster.current or ""
        )

    @property
    def nsqd_addresses(self) -> list[str]:
        """The nsqd it is connected to now."""
        return list(self._links.open)

    @property
    def unconfirmed(self) -> int:
        """The number of messages that are sent, or wait to be sent, and are not confirmed yet."""
        return self._dispatch.unconfirmed

    # --- which nsqd

    async def connect_to_nsqd(self, address: str) -> None:
        """Add an nsqd to publish to. Raises the error of a failed connection; it is tried again later."""
        await self._links.add(address)

    async def disconnect_from_nsqd(self, address: str) -> None:
        """Remove an nsqd that was given by address, and wait for the publishes under way to it.

        Raises ValueError when it was not given.
        """
        await self._links.remove(address)

    def connect_to_nsqlookupd(self, address: str) -> None:
        """Add an nsqlookupd to ask for nsqd."""
        self._links.add_lookupd(address)

    def disconnect_from_nsqlookupd(self, address: str) -> None:
        """Stop asking this nsqlookupd, and disconnect from the nsqd that only it has named."""
        self._links.remove_lookupd(address)

    # --- publishing

    async def publish(
        self,
        topic: str,
        body: Body,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | timedelta | None = None,
    ) -> None:
        """Publish one message and wait for its confirmation.

        Raises TimeoutError after *timeout* seconds. The message may still be published then, because it
        cannot be recalled once it was sent.
        """
        if timeout is None and headers is None and self._chain is None:
            await (await self.submit(topic, body))
            return
        await self._publish(Publication(topic, [body_bytes(body)], headers=dict(headers or {})), timeout)

    async def multi_publish(
        self,
        topic: str,
        bodies: Sequence[Body],
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | timedelta | None = None,
    ) -> None:
        """Publish several messages, all or none, and wait for their confirmation."""
        publication = Publication(topic, all_bytes(bodies), headers=dict(headers or {}), together=True)
        await self._publish(publication, timeout)

    async def deferred_publish(
        self,
        topic: str,
        body: Body,
        delay: float | timedelta,
        *,
        timeout: float | timedelta | None = None,
    ) -> None:
        """Publish one message that is delivered after *delay* seconds at the earliest."""
        await self._publish(Publication(topic, [body_bytes(body)], delay=seconds_of(delay)), timeout)

    async def submit(
        self, topic: str, body: Body, *, headers: Mapping[str, str] | None = None
    ) -> Confirmation:
        """Send one message and return a future that ends when the message is confirmed, or fails.

        The call itself waits only while too much is unconfirmed, so that memory stays bounded. Messages that
        are submitted to one topic at the same moment go out as one MPUB, but each has its own outcome.
        """
        if body.__class__ is not bytes:
            body = body_bytes(body)
        if not body:
            raise ValueError("a message must not be empty")
        if self._chain is not None or headers:
            return await self._start(Publication(topic, [body], headers=dict(headers or {})))
        links = self._links
        link = links.current
        if (
            link is None
            or link.under_way.is_full
            or link.is_closed
            or self._backlog.messages
            or self._queue
            or self._dispatch.closed
        ):
            link = await self._dispatch.ready(len(body))
            if link is None:
                answer: Confirmation = asyncio.get_running_loop().create_future()
                self._dispatch.enqueue(Publish.of(topic, body, answer))
                return answer
        if links.spread and not links.turn_noted:
            links.note_turn()
        return link.submit(topic, body)

    def _offer(self, topic: str, body: bytes, answer: Answer) -> bool:
        """Like :meth:`submit`, but sets *answer* instead of a new future; False when there is no room yet."""
        self._dispatch.check_open()
        if self._chain is not None:
            if not self._chain.has_room:
                return False
            work = self._chain.start(Publication(topic, [body]))
            work.add_done_callback(partial(_pass_on, answer))
            return True
        links = self._links
        link = links.current
        if link is None or link.under_way.is_full or link.is_closed or self._backlog.messages or self._queue:
            link, room = self._dispatch.next_connection()
            if not room:
                return False
            if link is None:
                self._dispatch.enqueue(Publish.of(topic, body, answer))
                return True
        if links.spread and not links.turn_noted:
            links.note_turn()
        link.publish(topic, body, answer)
        return True

    async def _wait_for_room(self, size: int) -> None:
        """Wait until there is room for a message of *size* bytes; raises ClosedError when it is closed."""
        if self._chain is not None:
            await self._chain.room()
        else:
            await self._dispatch.ready(size)

    async def submit_many(self, topic: str, bodies: Sequence[Body]) -> Confirmation:
        """Like :meth:`submit`, for several messages of which nsqd takes all or none."""
        return await self._start(Publication(topic, all_bytes(bodies), together=True))

    async def submit_deferred(self, topic: str, body: Body, delay: float | timedelta) -> Confirmation:
        """Like :meth:`submit`, for one message that is delivered after *delay* seconds at the earliest."""
        return await self._start(Publication(topic, [body_bytes(body)], delay=seconds_of(delay)))

    async def ping(self, *, timeout: float | timedelta | None = None) -> None:
        """Connect unless connected already, to check the settings before the first publish.

        Raises the error that prevents it.
        """
        self._dispatch.check_open()
        async with asyncio.timeout(_seconds(timeout)):
            if self._links.current is None or self._links.current.is_closed:
                self._links.current = await self._links.connect_any()
        self._links.current.send(commands.NOP)

    async def flush(self, *, timeout: float | timedelta | None = None) -> None:
        """Wait until no publish is under way; errors are in the futures that submit() returned."""
        async with asyncio.timeout(_seconds(timeout)):
            while pending := [*self._dispatch.pending(), *self._passing]:
                await asyncio.wait([awaitable(answer) for answer in pending])

    async def close(self, drain_seconds: float | timedelta = 30) -> None:
        """Wait up to *drain_seconds* for the publishes under way, then disconnect; unconfirmed ones fail."""
        if self._dispatch.closed:
            return
        self._dispatch.closed = True
        self._dispatch.wake_all()
        try:
            await self.flush(timeout=drain_seconds)
        except TimeoutError:
            log.warning(
                "%d publishes were not confirmed in %g s", self.unconfirmed, seconds_of(drain_seconds)
            )
        finally:
            await self._dispatch.end()

    # --- the common path

    async def _publish(self, publication: Publication, timeout: float | timedelta | None) -> None:
        async with asyncio.timeout(_seconds(timeout)) as limit:
            if self._chain is not None:
                await self._chain.publish(publication, limit)
            else:
                await (await self._dispatch.submit(publication))

    async def _start(self, publication: Publication) -> Confirmation:
        if self._chain is None:
            return await self._dispatch.submit(publication)
        await self._chain.room()
        return self._chain.start(publication)

    @property
    def _passing(self) -> set[Confirmation]:
        """The submitted publishes whose middlewares have not ended."""
        return set() if self._chain is None else self._chain.under_way


def _seconds(timeout: float | timedelta | None) -> float | None:
    return None if timeout is None else seconds_of(timeout)


def _pass_on(answer: Answer, work: Confirmation) -> None:
    if answer.done():
        return
    if work.cancelled():
        answer.cancel()
    elif (error := work.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(OK)
