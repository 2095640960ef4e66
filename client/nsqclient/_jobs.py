"""A handler and how it is to be called, checked when it is added."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import CoroutineType
from typing import Any, TypeAlias, TypeGuard

from nsqclient._message import Message, T

Handler: TypeAlias = Callable[[Message[T]], Awaitable[None] | None]
BatchHandler: TypeAlias = Callable[[list[Message[T]]], Awaitable[None] | None]
Decode: TypeAlias = Callable[[bytes], T]

# A handler with its middlewares around it, of a message or of a batch.
Call: TypeAlias = Callable[[Any], Awaitable[Any] | None]


@dataclass(frozen=True, slots=True, eq=False, repr=False)  # each method takes time when it is imported
class Job:
    """A handler and how it is to be called."""

    handler: Callable[[Any], Awaitable[None] | None]
    concurrency: int = 1
    in_threads: bool = False
    batch_size: int = 0  # 0 for one message at a time
    batch_seconds: float = 0

    def __post_init__(self) -> None:
        if not callable(self.handler):
            raise TypeError(f"a handler is called with a message; {self.handler!r} cannot be called")
        if self.in_threads and _is_coroutine_function(self.handler):
            raise TypeError(f"{self.handler!r} is a coroutine function: a thread would not run it")
        if self.concurrency < 1:
            raise ValueError(f"concurrency {self.concurrency} is not positive")
        if self.batch_size < 0 or self.batch_seconds < 0:
            raise ValueError("size and seconds of a batch must not be negative")

    @property
    def demand(self) -> int:
        """The number of messages it can have in hand."""
        return self.concurrency * max(1, self.batch_size)


def is_awaitable(pending: object) -> TypeGuard[Awaitable[Any]]:
    return pending.__class__ is CoroutineType or hasattr(pending, "__await__")


def _is_coroutine_function(handler: object) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object whose call is a coroutine function
    )
