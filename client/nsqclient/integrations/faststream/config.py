"""The configuration of brokers, routers, subscribers and publishers."""

from dataclasses import dataclass, field
from typing import Any

from faststream._internal.configs import (
    BrokerConfig,
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
    SubscriberSpecificationConfig,
    SubscriberUsecaseConfig,
)
from faststream._internal.constants import EMPTY
from faststream.middlewares import AckPolicy

from nsqclient._config import Config
from nsqclient._retry import Retry


@dataclass(kw_only=True)
class NsqBrokerConfig(BrokerConfig):
    """The configuration of a broker or a router; a router looks settings up in that of its broker."""

    nsqd_addresses: tuple[str, ...] = ()
    lookupd_addresses: tuple[str, ...] = ()
    channel: str = ""
    client: Config = field(default_factory=Config)


@dataclass(kw_only=True)
class NsqSubscriberConfig(SubscriberUsecaseConfig):
    topic: str
    channel: str
    max_workers: int
    retry: Retry | None
    auto_touch: bool

    @property
    def ack_policy(self) -> AckPolicy:
        """By default a message whose handler fails is delivered again; subscriber or broker may change it."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class NsqSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    topic: str
    channel: str


@dataclass(kw_only=True)
class NsqPublisherConfig(PublisherUsecaseConfig):
    topic: str
    headers: dict[str, Any]
    delay: float


@dataclass(kw_only=True)
class NsqPublisherSpecificationConfig(PublisherSpecificationConfig):
    topic: str
