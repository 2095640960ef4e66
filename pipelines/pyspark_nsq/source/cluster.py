"""The cluster from the driver's view: its logs and their places, the channel on them, acknowledging."""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from nsqclient.wire.node_error import CHANNEL_NOT_FOUND, DECOMMISSIONED, TOPIC_NOT_FOUND, NodeError
from pyspark_nsq.source.asking import Asking
from pyspark_nsq.source.bounds import Bounds
from pyspark_nsq.source.discovery import Place, SourceDiscovery
from pyspark_nsq.source.errors import DataLossError, SourceError
from pyspark_nsq.source.http import NodeConnection
from pyspark_nsq.source.offsets import Offset, Offsets, name_of, nsqd_of, place_of
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


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log, and the address where it was found."""

    address: str
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """What an nsqd has counted of a topic since the topic was created."""

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
        self._places: frozenset[Place] | None = None
        self._looked_at = 0.0

    def close(self) -> None:
        self._asking.close()

    def wait_until_listed(self) -> None:
        """Wait until the listed nsqds are all that there are, as far as nsqlookupd knows."""
        self._discovery.wait_until_listed()

    def survey(
        self, known: Offset, channel: NewChannel, *, must_exist: bool = True, idle: bool = False
    ) -> dict[str, FoundLog]:
        """Return all logs that discovery lists and all *known* ones, by name.

        If the channel is missing on a new log, it is created as *channel* says, so that nsqd keeps what is
        not acknowledged. Unless data loss is accepted, all of them must answer, and the known ones must have
        the channel. An *idle* query uses a recent answer of nsqlookupd. Raises SourceError.
        """
        positions = known.positions
        listed = self._look(silence_ends=must_exist and not positions, idle=idle)
        if listed is None and not positions and must_exist:
            raise SourceError(f"topic {self.options.described} does not exist: no nsqlookupd has heard of it")
        noted = {name: (place_of(name)[0], known.address(name)) for name in positions}
        forgotten = set(self.options.forget_nsqds)
        asked = {place for place in {*noted.values(), *(listed or ())} if place[1] not in forgotten}
        answers = self._bounds_at(asked)
        by_identity = {
            (place[0], answer.data_path): (place, answer)
            for place, answer in answers.items()
            if isinstance(answer, Bounds) and answer.data_path
        }
        found: dict[str, FoundLog] = {}
        settled: set[Place] = set()
        for name, place in noted.items():
            settled.add(place)
            if place[1] in forgotten:
                continue
            at = self._known(name, known, place, answers[place], by_identity)
            if at is not None:
                settled.add(at[0])
                found[name] = FoundLog(at[0][1], at[1])
        seen = {
            (place_of(name)[0], log.bounds.data_path) for name, log in found.items() if log.bounds.data_path
        }
        new: dict[str, FoundLog] = {}
        for place in sorted(answers):
            answer = answers[place]
            if place in settled and not self._is_another(place, answer, found):
                continue
            if isinstance(answer, NodeError):
                if answer.code != TOPIC_NOT_FOUND:
                    self._asking.unusable(place[1], answer)
            elif (place[0], answer.data_path) not in seen:
                if answer.data_path:
                    seen.add((place[0], answer.data_path))
                new[self._name(place, answer, {*positions, *found, *new})] = FoundLog(place[1], answer)
        if not found and not new and not positions and must_exist and self.options.nsqd_http_addresses:
            raise SourceError(f"topic {self.options.described} does not exist: no nsqd of the list has it")
        found |= self._with_channel(self._having_channel(found), NewChannel.FROM_EARLIEST)
        return found | self._with_channel(new, channel)

    def _known(
        self,
        name: str,
        known: Offset,
        place: Place,
        answer: Bounds | NodeError,
        by_identity: Mapping[tuple[str, str], tuple[Place, Bounds]],
    ) -> tuple[Place, Bounds] | None:
        """Return place and bounds of a log that the query has read before; None if its loss is accepted."""
        identity = known.data_paths.get(name, "")
        if isinstance(answer, Bounds) and identity and answer.data_path == identity:
            return place, answer
        if (place[0], identity) in by_identity:
            return by_identity[place[0], identity]
        if isinstance(answer, Bounds) and not (identity and answer.data_path):
            # The nsqd or the offset is from a version without identities.
            return place, answer
        if isinstance(answer, Bounds):
            self._asking.lost(
                f"the query has read nsqd {nsqd_of(name)} up to {known.positions[name]}, but at {place[1]} "
                "there is another data path now: its data was replaced, or it is at an address that is not "
                "listed",
                DataLossError,
            )
        elif answer.code == TOPIC_NOT_FOUND:
            self._asking.lost(f"nsqd {place[1]} has no topic {place[0]!r} any more", DataLossError)
        else:
            self._asking.unusable(place[1], answer)
        return None

    @staticmethod
    def _is_another(place: Place, answer: Bounds | NodeError, found: Mapping[str, FoundLog]) -> bool:
        """Whether another log is at the place of a known one."""
        return isinstance(answer, Bounds) and not any(
            log.address == place[1] and log.bounds is answer for log in found.values()
        )

    def _name(self, place: Place, bounds: Bounds, taken: set[str]) -> str:
        """Return the name for a new log."""
        name = name_of(*place)
        return f"{name}#{bounds.data_path[:_SHORT]}" if name in taken else name

    # --- the channel

    def _having_channel(self, found: Mapping[str, FoundLog]) -> dict[str, FoundLog]:
        """Return the known logs where the channel is missing. Raises DataLossError unless that is accepted.

        Messages that were published after the channel was removed are not kept for the query, and a new
        channel would hide that.
        """
        without = {
            name: log
            for name, log in found.items()
            if self.options.channel and self.options.channel not in log.bounds.acknowledged
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
        missing = {
            name: log for name, log in logs.items() if self.options.channel not in log.bounds.acknowledged
        }
        if channel is NewChannel.NONE or not missing:
            return dict(logs)
        start = [("start", "earliest")] if channel is NewChannel.FROM_EARLIEST else []
        by_address = _by_address({(place_of(name)[0], log.address): name for name, log in missing.items()})

        def create(node: NodeConnection) -> dict[str, Bounds]:
            made: dict[str, Bounds] = {}
            for topic, name in by_address[node.address]:
                node.post("/channel/create", [*self._channel(topic), *start])
                made[name] = _bounds(node, topic, self.options.channel)
            return made

        result = dict(logs)
        for address, answer in self._asking.ask(by_address, create).items():
            if isinstance(answer, NodeError):
                self._asking.unusable(address, answer)
                for _, name in by_address[address]:
                    result.pop(name)
            else:
                result |= {name: FoundLog(address, bounds) for name, bounds in answer.items()}
        return result

    def _channel(self, topic: str) -> list[tuple[str, str]]:
        return [("topic", topic), ("channel", self.options.channel)]

    # --- asking

    def _look(self, *, silence_ends: bool, idle: bool) -> frozenset[Place] | None:
        now = time.monotonic()
        if not (idle and self._places and now - self._looked_at < _LOOKUP_S):
            self._places = self._discovery.places(silence_ends=silence_ends)
            self._looked_at = now
        return self._places

    def _bounds_at(self, places: Iterable[Place], retry_s: float | None = None) -> dict[Place, Any]:
        """Return the bounds at each place, or the NodeError in place of them."""
        by_address = _by_address(dict.fromkeys(places, ""))

        def ask(node: NodeConnection) -> list[Bounds | NodeError]:
            channel = self.options.channel
            return [_bounds_or_error(node, topic, channel) for topic, _ in by_address[node.address]]

        answers: dict[Place, Bounds | NodeError] = {}
        for address, answer in self._asking.ask(by_address, ask, retry_s).items():
            for (topic, _), one in zip(by_address[address], _each(answer), strict=False):
                answers[topic, address] = one
        return answers

    def still_there(self, known: Offset, names: Iterable[str]) -> dict[str, Bounds]:
        """Return the bounds of those of the logs *names* that answer."""
        places = {name: (place_of(name)[0], known.address(name)) for name in names}
        answers = self._bounds_at(places.values(), retry_s=0.0)
        return {
            name: answer
            for name, place in places.items()
            if isinstance(answer := answers[place], Bounds)
            and known.data_paths.get(name, answer.data_path) == answer.data_path
        }

    def addresses(self, known: Offset) -> dict[str, str]:
        """Return the present addresses of the logs of a planned batch, without those that are not found."""
        wanted = {(place_of(name)[0], path): name for name, path in known.data_paths.items()}
        noted = {(place_of(name)[0], known.address(name)) for name in known.positions}
        listed = self._look(silence_ends=False, idle=True) or frozenset()
        answers = self._bounds_at({*noted, *listed}, retry_s=0.0)
        return {
            wanted[topic, answer.data_path]: address
            for (topic, address), answer in answers.items()
            if isinstance(answer, Bounds) and (topic, answer.data_path) in wanted
        }

    def sizes(self, logs: Mapping[str, FoundLog]) -> dict[str, TopicCounts]:
        """Return what each nsqd has counted of its log, without those that do not answer."""
        by_address = _by_address({(place_of(name)[0], log.address): name for name, log in logs.items()})

        def ask(node: NodeConnection) -> dict[str, TopicCounts]:
            return {name: _sizes(node, topic) for topic, name in by_address[node.address]}

        answers = self._asking.ask(by_address, ask, 0.0).values()
        return {name: one for answer in answers if isinstance(answer, dict) for name, one in answer.items()}

    def set_channel(self, positions: Mapping[str, int], found: Mapping[str, FoundLog]) -> None:
        """Let the channel owe all that the logs *found* keep from these positions on, and nothing before."""
        by_address = _by_address({(place_of(name)[0], found[name].address): name for name in positions})

        def seek(node: NodeConnection) -> None:
            for topic, name in by_address[node.address]:
                node.post("/channel/seek", [*self._channel(topic), ("to", str(positions[name]))])

        for address, answer in self._asking.ask(by_address, seek).items():
            if isinstance(answer, NodeError):
                self._asking.unusable(address, answer)

    def acknowledge(self, positions: Mapping[str, int], where: Mapping[str, str]) -> Offsets:
        """Acknowledge all messages below these positions; return the positions that were acknowledged.

        *where* has the addresses of the logs.
        """
        by_address = _by_address({(place_of(name)[0], where[name]): name for name in positions})

        def commit(node: NodeConnection) -> dict[str, NodeError | None]:
            done: dict[str, NodeError | None] = {}
            for topic, name in by_address[node.address]:
                try:
                    node.post("/channel/commit", [*self._channel(topic), ("sequence", str(positions[name]))])
                    done[name] = None
                except NodeError as error:
                    done[name] = error
            return done

        acknowledged: Offsets = {}
        for answer in self._asking.ask(by_address, commit).values():
            for name, error in (answer if isinstance(answer, dict) else {}).items():
                topic, nsqd = place_of(name)
                if error is None:
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
                    acknowledged[name] = positions[name]  # it is of no use to ask again
                    log.warning(
                        "nsqd %s was decommissioned before all stored messages were acknowledged; "
                        "the new owner delivers the rest on channel %s",
                        nsqd,
                        self.options.channel,
                    )
                else:
                    self._asking.unusable(nsqd, error)
        return acknowledged


def _by_address(names: Mapping[Place, str]) -> dict[str, list[tuple[str, str]]]:
    """Group topics and names of logs by address."""
    grouped: dict[str, list[tuple[str, str]]] = {}
    for (topic, address), name in sorted(names.items()):
        grouped.setdefault(address, []).append((topic, name))
    return grouped


def _each(answer: list[Bounds | NodeError] | NodeError) -> Iterable[Bounds | NodeError]:
    """Yield an answer for each topic that was asked for; a node's error is repeated for all of them."""
    if isinstance(answer, NodeError):
        while True:
            yield answer
    yield from answer


def _bounds(node: NodeConnection, topic: str, channel: str) -> Bounds:
    """Ask for the bounds as a reader with this channel sees them; one without a channel sees all messages."""
    return node.get_json("/log/bounds", [("topic", topic), ("channel", channel)], Bounds.from_json)


def _bounds_or_error(node: NodeConnection, topic: str, channel: str) -> Bounds | NodeError:
    try:
        return _bounds(node, topic, channel)
    except NodeError as error:
        if error.unreachable:
            raise
        return error


def _sizes(node: NodeConnection, topic: str) -> TopicCounts:
    query = [("format", "json"), ("topic", topic), ("include_clients", "false"), ("include_mem", "false")]

    def read(stats: Mapping[str, Any]) -> TopicCounts:
        counted = [one for one in stats["topics"] if one["topic_name"] == topic]
        return TopicCounts(
            sum(int(one["message_count"]) for one in counted),
            sum(int(one["message_bytes"]) for one in counted),
        )

    return node.get_json("/stats", query, read)
