"""Sends a request to many nodes in parallel, and collects their answers and their failures."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from nsqclient.wire.node_error import NodeError

T = TypeVar("T")
U = TypeVar("U")
Target = TypeVar("Target")


@dataclass(frozen=True, slots=True)
class Partial(Generic[T]):
    """A result that may be incomplete: ``value`` holds the answers, ``errors`` the failures of nodes."""

    value: T
    errors: tuple[NodeError, ...] = ()
    targets: int = 0

    @property
    def failed(self) -> bool:
        """Whether no node answered. Without any target, it is not a failure."""
        return self.targets > 0 and len(self.errors) >= self.targets

    def map(self, change: Callable[[T], U]) -> "Partial[U]":
        return Partial(change(self.value), self.errors, self.targets)


async def call_all(
    targets: Iterable[Target], ask: Callable[[Target], Awaitable[T]], *, at_once: int | None = None
) -> Partial[list[tuple[Target, T]]]:
    """Call *ask* for all targets in parallel, or for at most *at_once* of them at any time.

    Answers are in the order of the targets. Requests to different nodes have no bound, so that a node that
    hangs delays no other; many requests to the same few nodes need a bound.
    """
    asked = list(targets)
    free = asyncio.Semaphore(at_once or len(asked) or 1)

    async def settle(target: Target) -> T | NodeError:
        async with free:
            return await _settle(ask(target))

    answers = await asyncio.gather(*(settle(target) for target in asked))
    good: list[tuple[Target, T]] = []
    errors: list[NodeError] = []
    for target, answer in zip(asked, answers, strict=True):
        if isinstance(answer, NodeError):
            errors.append(answer)
        else:
            good.append((target, answer))
    return Partial(good, tuple(errors), len(asked))


async def _settle(call: Awaitable[T]) -> T | NodeError:
    try:
        return await call
    except NodeError as error:
        return error
