"""An asyncio client: publish with a Producer, read with a Consumer. See docs/client.md."""

from nsqcore.client.config import Config
from nsqcore.client.consumer import Consumer, ConsumerStats
from nsqcore.client.delivery import Delivery
from nsqcore.client.errors import AuthError, ClosedError, ConnectionLostError, HandshakeError, WrongPortError
from nsqcore.client.producer import Producer
from nsqcore.wire.errors import ProtocolError

__all__ = [
    "AuthError",
    "ClosedError",
    "Config",
    "ConnectionLostError",
    "Consumer",
    "ConsumerStats",
    "Delivery",
    "HandshakeError",
    "Producer",
    "ProtocolError",
    "WrongPortError",
]
