"""Middlewares run around every publish and every handler: to measure, trace, check or change it."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

from nsqclient._message import Message

Chained: TypeAlias = Callable[[Any], Awaitable[Any]]


@dataclass(slots=True)
class Publication:
    """One or more messages about to be published; a middleware may change them."""

    topic: str
    bodies: list[bytes]  # several are published together
    delay: float | timedelta = 0
    headers: dict[str, str] = field(default_factory=dict)
    together: bool = False  # several messages, of which nsqd takes all or none
    takes_headers: bool = False  # whether headers can be added


class Middleware:
    """Override the methods you need; *call_next* calls the next step and raises its errors.

    The first middleware of a list is the outermost.
    """

    async def publish(
        self, publication: Publication, call_next: Callable[[Publication], Awaitable[None]]
    ) -> None:
        """Called around one publish, until nsqd has confirmed it."""
        await call_next(publication)

    async def handle(
        self, message: Message[Any], call_next: Callable[[Message[Any]], Awaitable[object]]
    ) -> object:
        """Called around the handler of one message."""
        return await call_next(message)

    async def handle_batch(
        self, messages: list[Message[Any]], call_next: Callable[[list[Message[Any]]], Awaitable[object]]
    ) -> object:
        """Called around a handler of several messages."""
        return await call_next(messages)


def around(methods: Iterable[Callable[[Any, Any], Awaitable[Any]]], call: Callable[[Any], Any]) -> Chained:
    """*call* with these methods of middlewares around it, the first outermost; it may return no awaitable."""

    async def awaited(given: Any) -> Any:
        result = call(given)
        return await result if hasattr(result, "__await__") else result

    chained: Chained = awaited
    for method in reversed(list(methods)):
        chained = partial(_swapped, method, chained)
    return chained


def _swapped(method: Callable[[Any, Any], Awaitable[Any]], call_next: Any, given: Any) -> Awaitable[Any]:
    return method(given, call_next)
