"""How often a message is tried, and after which delays: immutable values that can be shared."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from nsqclient.wire.durations import seconds_of

Delay: TypeAlias = Callable[[int], float]
"""From the number of deliveries so far (1 after the first) to the seconds to wait."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same delay each time."""

    seconds: float | timedelta

    def __call__(self, attempts: int) -> float:
        del attempts
        return _checked(self.seconds)


@dataclass(frozen=True, slots=True)
class Linear:
    """*step* times the number of deliveries so far, at most *most*."""

    step: float | timedelta
    most: float | timedelta = 3600

    def __call__(self, attempts: int) -> float:
        return min(_checked(self.step) * attempts, _checked(self.most))


@dataclass(frozen=True, slots=True)
class Exponential:
    """*first*, then *factor* times as long each time, at most *most*.

    *jitter* 0.5 shortens each delay at random by up to a half, so that messages that failed together are not
    delivered together again.
    """

    first: float | timedelta
    most: float | timedelta = 3600
    factor: float = 2
    jitter: float = 0

    def __post_init__(self) -> None:
        if self.factor < 1 or not 0 <= self.jitter <= 1:
            raise ValueError(f"{self} has a factor below 1 or a jitter outside of 0-1")

    def __call__(self, attempts: int) -> float:
        most = _checked(self.most)
        # Bounded, because a large exponent would overflow.
        exponent = min(max(attempts - 1, 0), 64)
        seconds = min(_checked(self.first) * self.factor**exponent, most)
        return seconds * (1 - self.jitter * random.random())


@dataclass(frozen=True, slots=True)
class Retry:
    """How a message whose handler fails is tried again.

    It is delivered at most *max_attempts* times (0 means without limit), each time after *delay*. With
    *backoff* the consumer also takes fewer messages for a while: right when the handler fails because
    something it needs is down, wrong when single messages are bad.
    """

    max_attempts: int = 5
    delay: Delay = field(default_factory=lambda: Exponential(1, 600))
    backoff: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.max_attempts <= 65535:
            raise ValueError(f"max_attempts {self.max_attempts} is out of range 0-65535")
        if self.delay(1) < 0:
            raise ValueError("a delay must not be negative")


def _checked(delay: float | timedelta) -> float:
    seconds = seconds_of(delay)
    if seconds < 0:
        raise ValueError(f"delay {seconds:g} is negative")
    return seconds
