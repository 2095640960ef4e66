"""The cluster from the driver's view: its logs and their places, the channel on them, acknowledging."""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, TypeAlias

from nsqclient.wire.node_error import CHANNEL_NOT_FOUND, DECOMMISSIONED, TOPIC_NOT_FOUND, NodeError
from pyspark_nsq.source.asking import Asking
from pyspark_nsq.source.bounds import Bounds
from pyspark_nsq.source.discovery import SourceDiscovery, TopicNode
from pyspark_nsq.source.errors import DataLossError, SourceError, UnreachableError
from pyspark_nsq.source.http import LOG_NOT_FOUND, NodeConnection, Patience, of_log, passes
from pyspark_nsq.source.offsets import Offset, Offsets, name_of, nsqd_of, topic_and_address, topic_of
from pyspark_nsq.source.options import SourceOptions

# While a query is idle, it asks nsqlookupd no more often than this.
_LOOKUP_S: Final = 1.0
# Characters of a data path's identity in the name of a log whose address is already another log's name.
_SHORT: Final = 8

log: Final = logging.getLogger("pyspark_nsq.source")


class NewChannel(Enum):
    """How to create the channel of a log that the query did not know before."""

    NONE = "leave it"
    FROM_NOW = "it keeps what comes from now on, the first of a topic also what waits"
    FROM_EARLIEST = "it keeps all that is still kept"


# The bounds of the own log of an nsqd first, then those of promoted copies there.
Answer: TypeAlias = tuple[Bounds, ...] | NodeError


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log, and the address where it was found."""

    address: str
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """The counters of a topic on one nsqd since the topic was created."""

    messages: int
    size: int

    @property
    def average(self) -> float:
        """Average bytes of a message; 1 if there is none."""
        return self.size / self.messages if self.messages else 1.0


class TopicCluster:
    """The topics of a query, and the channel on which they are read."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._asking = Asking(options)
        self._discovery = SourceDiscovery(options, self._asking)
        self._topic_nodes: frozenset[TopicNode] | None = None
        self._discovered_at = 0.0

    def close(self) -> None:
        self._asking.close()

    def wait_until_listed(self) -> None:
        """Wait until the listed nsqds are all that there are, as far as nsqlookupd knows."""
        self._discovery.wait_until_listed()

    def survey_once(self) -> dict[str, FoundLog]:
        """Return all logs for a read that happens once, and that would not see an nsqd that is away now.

        The read waits for an nsqd that was listed within the last five minutes. If it does not come back, and
        no other nsqd has a promoted copy of its log, that is data loss. Raises SourceError.
        """
        options = self.options
        patience = Patience(options.retry_s if options.fail_on_data_loss else 0.0)
        while True:
            # First, because an nsqd may come back before the survey and not after it.
            lost = {} if options.nsqd_http_addresses else self._discovery.lost()
            found = self.survey(Offset({}), NewChannel.NONE)
            missing = self._missing(lost, found)
            if not missing or not patience.pause():
                break
        for address, topic in missing:
            self._asking.lost(
                f"nsqd {address} had topic {topic!r} within the last five minutes and is disconnected from "
                "nsqlookupd now, so that its messages would be missing",
                UnreachableError,
            )
        return found

    def _missing(
        self, lost: Mapping[str, tuple[str, frozenset[str]]], found: Mapping[str, FoundLog]
    ) -> list[tuple[str, str]]:
        """Return address and topic of the logs that were listed a moment ago and are not *found*."""
        here = {(topic_of(name), log.address) for name, log in found.items()}
        here |= {(topic_of(name), log.bounds.data_path) for name, log in found.items()}
        return [
            (address, topic)
            for address, (identity, topics) in sorted(lost.items())
            if address not in self.options.forget_nsqds
            for topic in sorted(topics)
            if (topic, address) not in here and (topic, identity) not in here
        ]

    def survey(
        self, known: Offset, channel: NewChannel, *, must_exist: bool = True, idle: bool = False
    ) -> dict[str, FoundLog]:
        """Return all logs that discovery lists and all *known* ones, by name.

        If the channel is missing on a new log, it is created as *channel* says, so that nsqd keeps what is
        not acknowledged. Unless data loss is accepted, all of them must answer, and the known ones must have
        the channel. An *idle* query uses a recent answer of nsqlookupd. Raises SourceError.
        """
        positions = known.positions
        may_be_silent = not must_exist or bool(positions)
        # A query that knows its logs continues with them, and finds others at a later lookup.
        patience_s = 0.0 if positions or not self.options.fail_on_data_loss else self.options.retry_s
        listed = self._discover(patience_s, silence_ends=not may_be_silent, idle=idle)
        if listed is None and not positions and must_exist:
            raise SourceError(f"topic {self.options.described} does not exist: no nsqlookupd has heard of it")
        noted = {name: (topic_of(name), known.address(name)) for name in positions}
        answers, by_identity = self._answers(known, noted, listed, silence_ends=not may_be_silent)
        found: dict[str, FoundLog] = {}
        for name, place in noted.items():
            at = self._earlier_log(name, known, place, answers.get(place), by_identity)
            if at is not None:
                found[name] = at
        seen = {(topic_of(name), log.bounds.data_path) for name, log in found.items() if log.bounds.data_path}
        new: dict[str, FoundLog] = {}
        for place in sorted(answers):
            answer = answers[place]
            if isinstance(answer, NodeError):
                if place not in noted.values() and answer.code != TOPIC_NOT_FOUND:
                    self._asking.unusable(place[1], answer)
                continue
            for bounds in answer:
                identity = (place[0], bounds.data_path)
                if identity in seen or (not bounds.data_path and place in noted.values()):
                    continue
                if bounds.data_path:
                    seen.add(identity)
                log = by_identity.get(identity, FoundLog(place[1], bounds))
                if self.options.channel and log.bounds.is_copy and self._lacks_channel(log):
                    continue  # nothing in it is pending for the query
                new[self._name((place[0], log.address), log.bounds, {*positions, *found, *new})] = log
        if not found and not new and not positions and must_exist and self.options.nsqd_http_addresses:
            raise SourceError(f"topic {self.options.described} does not exist: no nsqd of the list has it")
        found |= self._with_channel(self._having_channel(found), NewChannel.FROM_EARLIEST)
        return found | self._with_channel(new, channel)

    def _answers(
        self,
        known: Offset,
        noted: Mapping[str, TopicNode],
        listed: frozenset[TopicNode] | None,
        *,
        silence_ends: bool,
    ) -> tuple[dict[TopicNode, Answer], dict[tuple[str, str], FoundLog]]:
        """Ask all places that are listed or noted; return their answers, and each log by topic and identity.

        While a place does not answer, all are asked again for retryTimeout, unless its log was found at
        another place: nsqd came back at another address, or a replica took over.
        """
        options = self.options
        patience = Patience(options.retry_s if options.fail_on_data_loss else 0.0)
        forgotten = set(options.forget_nsqds)
        while True:
            asked = {place for place in {*noted.values(), *(listed or ())} if place[1] not in forgotten}
            answers = self._bounds_of(asked)
            by_identity = _by_identity(answers)
            covered = {
                place
                for name, place in noted.items()
                if (place[0], known.data_paths.get(name, "")) in by_identity
            }
            has_silent = any(
                isinstance(answer, NodeError) and passes(answer) and place not in covered
                for place, answer in answers.items()
            )
            if not has_silent or not patience.pause():
                return answers, by_identity
            listed = self._discover(0.0 if noted else patience.left_s, silence_ends=silence_ends, idle=False)

    def _earlier_log(
        self,
        name: str,
        known: Offset,
        place: TopicNode,
        answer: Answer | None,
        by_identity: Mapping[tuple[str, str], FoundLog],
    ) -> FoundLog | None:
        """Return a log that the query has read before; None if its loss is accepted, or if all was read."""
        identity, position = known.data_paths.get(name, ""), known.positions[name]
        log = by_identity.get((place[0], identity))
        if log is not None:
            # A replica may lack the end of the log, which the query had read before the other nsqd was lost.
            behind = log.bounds.is_copy and log.bounds.end < position
            return replace(log, bounds=replace(log.bounds, end=position)) if behind else log
        if answer is None:
            return None  # it is forgotten
        if isinstance(answer, NodeError):
            if answer.code == TOPIC_NOT_FOUND:
                self._asking.lost(f"nsqd {place[1]} has no topic {place[0]!r} any more", DataLossError)
            else:
                self._asking.unusable(place[1], answer)
            return None
        own = answer[0]
        if not (identity and own.data_path):
            # The nsqd or the offset is from a version without identities.
            return FoundLog(place[1], own)
        there = {path for other, path in known.data_paths.items() if known.address(other) == place[1]}
        if own.data_path not in there:
            self._asking.lost(
                f"the query has read nsqd {nsqd_of(name)} up to {position}, but at {place[1]} there is "
                "another data path now: its data was replaced, or it is at an address that is not listed",
                DataLossError,
            )
        # Else the same nsqd had a promoted copy of the log, and dropped it: every channel had finished it.
        return None

    def _lacks_channel(self, log: FoundLog) -> bool:
        return self.options.channel not in log.bounds.acknowledged

    def _name(self, place: TopicNode, bounds: Bounds, taken: set[str]) -> str:
        """Return the name for a new log."""
        name = name_of(*place)
        return f"{name}#{bounds.data_path[:_SHORT]}" if name in taken else name

    # --- the channel

    def _having_channel(self, found: Mapping[str, FoundLog]) -> dict[str, FoundLog]:
        """Return the known logs where the channel is missing. Raises DataLossError unless that is accepted.

        nsqd does not retain messages for the query after the channel is removed, and a new channel would hide
        that.
        """
        without = {
            name: log for name, log in found.items() if self.options.channel and self._lacks_channel(log)
        }
        for name in without:
            self._asking.lost(
                f"channel {self.options.channel!r} was removed from nsqd {nsqd_of(name)}, "
                "so that messages which the query has not read may be gone",
                DataLossError,
            )
        return without

    def _with_channel(self, logs: Mapping[str, FoundLog], channel: NewChannel) -> dict[str, FoundLog]:
        """Return the same logs after creating the channel where it is missing."""
        missing = {name: log for name, log in logs.items() if self._lacks_channel(log)}
        if channel is NewChannel.NONE or not missing:
            return dict(logs)
        start = [("start", "earliest")] if channel is NewChannel.FROM_EARLIEST else []
        by_address = _by_address({name: log.address for name, log in missing.items()})

        def create(node: NodeConnection) -> dict[str, Bounds]:
            made: dict[str, Bounds] = {}
            for name in by_address[node.address]:
                topic = topic_of(name)
                node.post("/channel/create", [*self._channel(topic), *start])
                made[name] = node.log_bounds(topic, self.options.channel, missing[name].bounds.data_path)
            return made

        result = dict(logs)
        for address, answer in self._asking.ask(by_address, create).items():
            if isinstance(answer, NodeError):
                self._asking.unusable(address, answer)
                for name in by_address[address]:
                    result.pop(name)
            else:
                result |= {name: FoundLog(address, bounds) for name, bounds in answer.items()}
        return result

    def _channel(self, topic: str) -> list[tuple[str, str]]:
        return [("topic", topic), ("channel", self.options.channel)]

    # --- asking

    def _discover(self, patience_s: float, *, silence_ends: bool, idle: bool) -> frozenset[TopicNode] | None:
        now = time.monotonic()
        if not (idle and self._topic_nodes and now - self._discovered_at < _LOOKUP_S):
            self._topic_nodes = self._discovery.topic_nodes(patience_s, silence_ends=silence_ends)
            self._discovered_at = now
        return self._topic_nodes

    def _bounds_of(self, places: Iterable[TopicNode]) -> dict[TopicNode, Answer]:
        """Return the bounds of all logs at each place, or the NodeError in place of them."""
        topics: dict[str, list[str]] = {}
        for topic, address in sorted(set(places)):
            topics.setdefault(address, []).append(topic)

        def ask(node: NodeConnection) -> dict[TopicNode, Answer]:
            channel, address = self.options.channel, node.address
            return {(topic, address): _bounds_or_error(node, topic, channel) for topic in topics[address]}

        answers: dict[TopicNode, Answer] = {}
        for address, answer in self._asking.ask(topics, ask, 0.0).items():
            if isinstance(answer, NodeError):
                answer = {(topic, address): answer for topic in topics[address]}
            answers |= answer
        return answers

    def still_there(self, known: Offset, names: Iterable[str]) -> dict[str, Bounds]:
        """Return the bounds of those of the logs *names* that answer."""
        places = {name: (topic_of(name), known.address(name)) for name in names}
        answers = self._bounds_of(places.values())
        return {
            name: bounds
            for name, place in places.items()
            if isinstance(answer := answers[place], tuple)
            for bounds in answer
            if known.data_paths.get(name, answer[0].data_path) == bounds.data_path
        }

    def addresses(self, known: Offset) -> dict[str, str]:
        """Return the present addresses of the logs of a planned batch, without those that are not found."""
        noted = {(topic_of(name), known.address(name)) for name in known.positions}
        listed = self._discover(0.0, silence_ends=False, idle=True) or frozenset()
        found = _by_identity(self._bounds_of({*noted, *listed}))
        return {
            name: found[topic_of(name), path].address
            for name, path in known.data_paths.items()
            if (topic_of(name), path) in found
        }

    def sizes(self, logs: Mapping[str, FoundLog]) -> dict[str, TopicCounts]:
        """Return the counters of each log, without the nsqds that do not answer."""
        by_address = _by_address({name: log.address for name, log in logs.items()})

        def ask(node: NodeConnection) -> dict[str, TopicCounts]:
            return {name: _sizes(node, topic_of(name)) for name in by_address[node.address]}

        answers = self._asking.ask(by_address, ask, 0.0).values()
        return {name: one for answer in answers if isinstance(answer, dict) for name, one in answer.items()}

    def set_channel(self, positions: Mapping[str, int], found: Mapping[str, FoundLog]) -> None:
        """Make all messages of the logs *found* from these positions on pending, and none before them."""
        by_address = _by_address({name: found[name].address for name in positions})

        def seek(node: NodeConnection) -> None:
            for name in by_address[node.address]:
                node.post("/channel/seek", [*self._channel(topic_of(name)), ("to", str(positions[name]))])

        for address, answer in self._asking.ask(by_address, seek).items():
            if isinstance(answer, NodeError):
                self._asking.unusable(address, answer)

    def acknowledge(
        self, positions: Mapping[str, int], where: Mapping[str, str], data_paths: Mapping[str, str]
    ) -> Offsets:
        """Acknowledge all messages below these positions; return the positions that were acknowledged.

        *where* has the addresses of the logs, *data_paths* their identities.
        """
        by_address = _by_address({name: where[name] for name in positions})

        def commit(node: NodeConnection) -> dict[str, NodeError | None]:
            done: dict[str, NodeError | None] = {}
            for name in by_address[node.address]:
                log = of_log(data_paths.get(name, ""))
                below = ("sequence", str(positions[name]))
                try:
                    node.post("/channel/commit", [*self._channel(topic_of(name)), below, *log])
                    done[name] = None
                except NodeError as error:
                    done[name] = error
            return done

        acknowledged: Offsets = {}
        for answer in self._asking.ask(by_address, commit).values():
            for name, error in (answer if isinstance(answer, dict) else {}).items():
                topic, nsqd = topic_and_address(name)
                if error is None or error.code == LOG_NOT_FOUND:
                    # A promoted copy is dropped when nothing in it is pending.
                    acknowledged[name] = positions[name]
                elif not self.options.is_chosen(topic):
                    log.warning(
                        "topic %r of nsqd %s, which is no longer read, was not acknowledged", topic, nsqd
                    )
                elif error.code == CHANNEL_NOT_FOUND:
                    self._asking.lost(
                        f"channel {self.options.channel!r} was removed from nsqd {nsqd} while it was read",
                        DataLossError,
                    )
                elif error.code == DECOMMISSIONED:
                    acknowledged[name] = positions[name]  # a retry would be useless
                    log.warning(
                        "nsqd %s was decommissioned before all stored messages were acknowledged; "
                        "the new owner delivers the rest on channel %s",
                        nsqd,
                        self.options.channel,
                    )
                else:
                    self._asking.unusable(nsqd, error)
        return acknowledged


def _by_address(where: Mapping[str, str]) -> dict[str, list[str]]:
    """Group the names of logs by address."""
    grouped: dict[str, list[str]] = {}
    for name in sorted(where):
        grouped.setdefault(where[name], []).append(name)
    return grouped


def _bounds_or_error(node: NodeConnection, topic: str, channel: str) -> Answer:
    """Return the bounds of the nsqd's own log, and those of promoted copies."""
    try:
        own = node.log_bounds(topic, channel)
        copies = [_copy_bounds(node, topic, channel, log) for log in own.promoted]
    except NodeError as error:
        if error.unreachable:
            raise
        return error
    return (own, *(copy for copy in copies if copy is not None))


def _copy_bounds(node: NodeConnection, topic: str, channel: str, log: str) -> Bounds | None:
    """Return the bounds of a promoted copy; None if it was dropped a moment ago."""
    try:
        return replace(node.log_bounds(topic, channel, log), is_copy=True)
    except NodeError as error:
        if error.code != LOG_NOT_FOUND:
            raise
        return None


def _by_identity(answers: Mapping[TopicNode, Answer]) -> dict[tuple[str, str], FoundLog]:
    """Return each log by its topic and identity; the origin's own counts before a promoted copy."""
    found: dict[tuple[str, str], FoundLog] = {}
    for place in sorted(answers):
        answer = answers[place]
        for bounds in answer if isinstance(answer, tuple) else ():
            identity = (place[0], bounds.data_path)
            if bounds.data_path and (identity not in found or not bounds.is_copy):
                found[identity] = FoundLog(place[1], bounds)
    return found


def _sizes(node: NodeConnection, topic: str) -> TopicCounts:
    query = [("format", "json"), ("topic", topic), ("include_clients", "false"), ("include_mem", "false")]

    def read(stats: Mapping[str, Any]) -> TopicCounts:
        counted = [one for one in stats["topics"] if one["topic_name"] == topic]
        return TopicCounts(
            sum(int(one["message_count"]) for one in counted),
            sum(int(one["message_bytes"]) for one in counted),
        )

    return node.get_json("/stats", query, read)
