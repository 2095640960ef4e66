"""An asyncio client: publish with a Producer, read with a Consumer."""

from nsqcore.client.consumer import Consumer
from nsqcore.client.delivery import Delivery
from nsqcore.client.errors import ConnectionLostError, HandshakeError
from nsqcore.client.options import ClientOptions
from nsqcore.client.producer import Producer
from nsqcore.wire.errors import ProtocolError

__all__ = [
    "ClientOptions",
    "ConnectionLostError",
    "Consumer",
    "Delivery",
    "HandshakeError",
    "Producer",
    "ProtocolError",
]
