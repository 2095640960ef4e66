"""Publish to NSQ with a Producer, read from it with a Consumer; `nsqclient.sync` has both without asyncio."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from nsqclient.version import __version__

if TYPE_CHECKING:
    from nsqclient.config import Config
    from nsqclient.consumer import Consumer, ConsumerStats
    from nsqclient.errors import (
        AuthError,
        ClosedError,
        ConnectionLostError,
        HandshakeError,
        UnreachableError,
        UnsupportedError,
        WrongPortError,
    )
    from nsqclient.message import Message
    from nsqclient.middleware import Middleware, Publication
    from nsqclient.producer import Producer
    from nsqclient.retry import Exponential, Fixed, Linear, Retry
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
    "AuthError": "errors",
    "ClosedError": "errors",
    "Config": "config",
    "ConnectionLostError": "errors",
    "Consumer": "consumer",
    "ConsumerStats": "consumer",
    "Exponential": "retry",
    "Fixed": "retry",
    "HandshakeError": "errors",
    "Linear": "retry",
    "Message": "message",
    "Middleware": "middleware",
    "NSQError": "wire.errors",
    "Producer": "producer",
    "ProtocolError": "wire.errors",
    "Publication": "middleware",
    "Retry": "retry",
    "UnreachableError": "errors",
    "UnsupportedError": "errors",
    "WrongPortError": "errors",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
