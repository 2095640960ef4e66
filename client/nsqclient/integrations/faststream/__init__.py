"""A broker for FastStream: handlers of topics and channels, publishers, routers, and its test kit.

Needs ``pip install nsqclient[faststream]``.
"""

from nsqclient.integrations.faststream.broker import NsqBroker
from nsqclient.integrations.faststream.message import NsqMessage
from nsqclient.integrations.faststream.routing import NsqRoute, NsqRoutePublisher, NsqRouter
from nsqclient.integrations.faststream.testing import TestNsqBroker

__all__ = ["NsqBroker", "NsqMessage", "NsqRoute", "NsqRoutePublisher", "NsqRouter", "TestNsqBroker"]
