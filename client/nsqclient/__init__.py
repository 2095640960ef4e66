"""Publish to NSQ with a Producer, read from it with a Consumer; `nsqclient.sync` has both without asyncio."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from nsqclient.version import __version__

if TYPE_CHECKING:
    from nsqclient._config import Config
    from nsqclient._consumer import Consumer, ConsumerStats
    from nsqclient._errors import (
        AuthError,
        ClosedError,
        ConnectionLostError,
        HandshakeError,
        UnreachableError,
        UnsupportedError,
        WrongPortError,
    )
    from nsqclient._message import Message
    from nsqclient._middleware import Middleware, Publication
    from nsqclient._producer import Producer
    from nsqclient._retry import Exponential, Fixed, Linear, Retry
    from nsqclient.wire.errors import NSQError, ProtocolError

__all__ = [
    "AuthError",
    "ClosedError",
    "Config",
    "ConnectionLostError",
    "Consumer",
    "ConsumerStats",
    "Exponential",
    "Fixed",
    "HandshakeError",
    "Linear",
    "Message",
    "Middleware",
    "NSQError",
    "Producer",
    "ProtocolError",
    "Publication",
    "Retry",
    "UnreachableError",
    "UnsupportedError",
    "WrongPortError",
    "__version__",
]

# Loaded on first use: a daemon that imports nsqclient.wire does not load the client, and a program that only
# publishes does not load the consumer.
_HOMES: Final = {
    name: module
    for module, names in (
        ("_config", ("Config",)),
        ("_consumer", ("Consumer", "ConsumerStats")),
        ("_errors", ("AuthError", "ClosedError", "ConnectionLostError", "HandshakeError")),
        ("_errors", ("UnreachableError", "UnsupportedError", "WrongPortError")),
        ("_message", ("Message",)),
        ("_middleware", ("Middleware", "Publication")),
        ("_producer", ("Producer",)),
        ("_retry", ("Exponential", "Fixed", "Linear", "Retry")),
        ("wire.errors", ("NSQError", "ProtocolError")),
    )
    for name in names
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
