"""How often a message is tried, and after which delays: immutable values that can be shared."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args

from nsqclient._jobs import Handler
from nsqclient.wire.durations import seconds_of
from nsqclient.wire.names import dead_letter_topic, is_valid_name

Delay: TypeAlias = Callable[[int], float]
"""From the number of deliveries so far (1 after the first) to the seconds to wait."""

End: TypeAlias = Literal["dead_letter", "discard"]
"""The fate of a message that failed too often."""


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
    """How often a message whose handler fails is tried, after which delays, and what follows.

    It is delivered again after *delay* seconds, without limit unless *max_attempts* gives one. With *backoff*
    the consumer also takes fewer messages for a while. This is right when the handler fails because something
    it needs is down, and wrong when single messages are bad.

    After *max_attempts* deliveries the message is finished. *then* says what happens to it before:

    - ``"dead_letter"``: it is published to *dead_letter_topic* on the nsqd it came from. Without that name
      the topic is ``{topic}.{channel}.dead``, as with a policy of nsqd.
    - ``"discard"``: nothing, so it is lost.
    - A function: it is called with the message, like a handler.

    When the dead letter or the function fails, the message is delivered again. With a limit or a
    *dead_letter_topic*, a message that ``decode`` cannot read is a dead letter after its first delivery.
    Raises ValueError for a limit outside of 0-65535, an unknown *then* and an invalid topic.
    """

    max_attempts: int = 0
    delay: Delay = field(default_factory=lambda: Exponential(1, 600))
    backoff: bool = True
    then: End | Handler[Any] = "dead_letter"
    dead_letter_topic: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.max_attempts <= 65535:
            raise ValueError(f"max_attempts {self.max_attempts} is out of range 0-65535")
        if not callable(self.then) and self.then not in get_args(End):
            raise ValueError(
                f"then {self.then!r} is neither a function nor one of {', '.join(get_args(End))}"
            )
        if self.dead_letter_topic and self.then != "dead_letter":
            raise ValueError("a dead_letter_topic is used only with then='dead_letter'")
        if self.dead_letter_topic and not is_valid_name(self.dead_letter_topic):
            raise ValueError(f"dead_letter_topic {self.dead_letter_topic!r} is not a valid name")
        if self.delay(1) < 0:
            raise ValueError("a delay must not be negative")

    def dead_letters_of(self, topic: str, channel: str) -> str:
        """The topic for the dead letters of this channel; empty if it has none."""
        if self.then != "dead_letter" or not (self.max_attempts or self.dead_letter_topic):
            return ""
        return self.dead_letter_topic or dead_letter_topic(topic, channel)


def _checked(delay: float | timedelta) -> float:
    seconds = seconds_of(delay)
    if seconds < 0:
        raise ValueError(f"delay {seconds:g} is negative")
    return seconds
