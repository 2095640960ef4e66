"""The cluster as the driver sees it: who has the topic, positions of logs and channel, acknowledging."""

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar

from nsqcore.cluster.errors import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND, NodeError
from nsqcore.cluster.models import Lookup, NodeInfo
from pipelines.source.bounds import Bounds
from pipelines.source.errors import DataLossError, SourceError
from pipelines.source.http import Node, open_node
from pipelines.source.offsets import Offsets
from pipelines.source.options import SourceOptions
from pipelines.source.reasons import explain

T = TypeVar("T")

# How many nodes are asked at the same time.
_PARALLEL: Final = 16

log: Final = logging.getLogger("pipelines.source")


class NewChannel(Enum):
    """What to do about the channel where it does not exist."""

    NONE = "leave it"
    FROM_NOW = "it keeps what comes from now on, the first of a topic also what waits"
    FROM_EARLIEST = "it keeps all that is still kept"


@dataclass(frozen=True, slots=True)
class TopicCluster:
    """One topic of a cluster, and the channel it is read on."""

    options: SourceOptions

    def producers(self, *, silence_ends: bool = True) -> frozenset[str] | None:
        """The nsqds that have the topic now, by discovery; None when the topic is unknown.

        When no nsqlookupd answers, it raises SourceError; without *silence_ends* the result is empty instead.
        """
        if self.options.nsqd_http_addresses:
            return self._listed()
        return self._looked_up(silence_ends=silence_ends)

    def _listed(self) -> frozenset[str]:
        """The nsqds of the fixed list, by the names that nsqlookupd has for them.

        A checkpoint uses these names. An nsqd with a second name would be read twice.
        """
        found: set[str] = set()
        for address, answer in self._ask(self.options.nsqd_http_addresses, self._name).items():
            if isinstance(answer, NodeError):
                self._unusable(address, answer)
            else:
                found.add(answer)
        return frozenset(found)

    def _looked_up(self, *, silence_ends: bool) -> frozenset[str] | None:
        answers = self._ask(self.options.lookupd_http_addresses, self._lookup)
        errors = {address: error for address, error in answers.items() if isinstance(error, NodeError)}
        down = {address: error for address, error in errors.items() if error.code != TOPIC_NOT_FOUND}
        if len(down) == len(answers):
            sentence = f"no nsqlookupd answered the search for topic {self.options.topic!r}: {_join(down)}"
            if silence_ends:
                raise SourceError(sentence)
            log.warning("%s; going on with the nsqd that are known", sentence)
            return frozenset()
        for address, error in down.items():
            log.warning("nsqlookupd %s did not answer, going by the others: %s", address, error)
        if len(errors) == len(answers):
            return None
        return frozenset().union(*(found for found in answers.values() if not isinstance(found, NodeError)))

    def survey(
        self, known: Iterable[str], channel: NewChannel, *, must_exist: bool = True
    ) -> dict[str, Bounds]:
        """The bounds of all producers that discovery lists and of those *known* from before.

        A missing channel is created as *channel* says, so that nsqd keeps what is not acknowledged.
        Unless data loss is accepted, all of them must answer.
        """
        known = frozenset(known)
        listed = self.producers(silence_ends=must_exist and not known)
        if listed is None and not known and must_exist:
            raise SourceError(f"topic {self.options.topic!r} does not exist: no nsqlookupd has heard of it")
        asked = sorted((known | (listed or frozenset())) - frozenset(self.options.forget_nsqds))
        answers = self._ask(asked, partial(self._bounds_with, channel))
        bounds: dict[str, Bounds] = {}
        for producer, answer in answers.items():
            if not isinstance(answer, NodeError):
                bounds[producer] = answer
            elif answer.code == TOPIC_NOT_FOUND:
                if producer in known:
                    self._lost(f"nsqd {producer} has no topic {self.options.topic!r} any more", DataLossError)
            else:
                self._unusable(producer, answer)
        if not bounds and not known and must_exist and self.options.nsqd_http_addresses:
            raise SourceError(f"topic {self.options.topic!r} does not exist: no nsqd of the list has it")
        return bounds

    def still_there(self, producers: Iterable[str]) -> dict[str, Bounds]:
        """The bounds of those *producers* that answer and have the topic."""
        answers = self._ask(producers, self._bounds, retry_s=0.0)
        return {producer: answer for producer, answer in answers.items() if not isinstance(answer, NodeError)}

    def acknowledge(self, positions: Mapping[str, int]) -> Offsets:
        """Acknowledge all messages below these positions; returns those that were acknowledged."""
        done: Offsets = {}

        def commit(node: Node) -> None:
            node.post("/channel/commit", [*self._channel, ("sequence", str(positions[node.address]))])

        for producer, answer in self._ask(positions, commit).items():
            if not isinstance(answer, NodeError):
                done[producer] = positions[producer]
            elif answer.code == CHANNEL_NOT_FOUND:
                reason = (
                    f"channel {self.options.channel!r} was removed from nsqd {producer} while it was read"
                )
                self._lost(reason, DataLossError)
            else:
                self._unusable(producer, answer)
        return done

    def _name(self, node: Node) -> str:
        return node.get_json("/info", [], _http_address)

    def _lookup(self, node: Node) -> frozenset[str]:
        lookup = node.get_json("/lookup", [("topic", self.options.topic)], Lookup.from_json)
        return frozenset(producer.http_address for producer in lookup.producers)

    def _bounds_with(self, channel: NewChannel, node: Node) -> Bounds:
        if channel is NewChannel.FROM_NOW:
            node.post("/channel/create", self._channel)
        elif channel is NewChannel.FROM_EARLIEST:
            node.post("/channel/create", [*self._channel, ("start", "earliest")])
        return self._bounds(node)

    def _bounds(self, node: Node) -> Bounds:
        return node.get_json("/log/bounds", [("topic", self.options.topic)], Bounds.from_json)

    @property
    def _channel(self) -> list[tuple[str, str]]:
        return [("topic", self.options.topic), ("channel", self.options.channel)]

    def _unusable(self, producer: str, error: NodeError) -> None:
        self._lost(explain(producer, error), SourceError)

    def _lost(self, sentence: str, error: type[SourceError]) -> None:
        if self.options.fail_on_data_loss:
            raise error(f"{sentence} (failOnDataLoss=false goes on without it)")
        log.warning("%s; going on without it", sentence)

    def _ask(
        self, addresses: Iterable[str], ask: Callable[[Node], T], retry_s: float | None = None
    ) -> dict[str, T | NodeError]:
        """Ask all nodes at once; what each answered, or why it did not."""
        if retry_s is None:
            # If a producer may be missing, do not wait for it; the next batch asks again.
            retry_s = self.options.retry_s if self.options.fail_on_data_loss else 0.0

        def settle(address: str) -> T | NodeError:
            with open_node(address, self.options, retry_s) as node:
                try:
                    return ask(node)
                except NodeError as error:
                    return error

        asked = list(addresses)
        with ThreadPoolExecutor(max_workers=_PARALLEL, thread_name_prefix="nsq") as threads:
            return dict(zip(asked, threads.map(settle, asked), strict=True))


def _http_address(info: Mapping[str, Any]) -> str:
    producer = NodeInfo.from_json(info)
    if not producer.broadcast_address or not producer.http_port:
        raise TypeError("it does not say where it can be reached, as nsqd does")
    return producer.http_address


def _join(errors: Mapping[str, NodeError]) -> str:
    return "; ".join(str(errors[address]) for address in sorted(errors))
