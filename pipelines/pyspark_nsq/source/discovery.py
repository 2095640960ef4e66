"""Finds the nsqds that have the topics of a query, by nsqlookupd or from a fixed list."""

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from nsqclient.wire.address import join_host_port
from nsqclient.wire.node_error import TOPIC_NOT_FOUND, NodeError
from pyspark_nsq.source.asking import Asking
from pyspark_nsq.source.errors import SourceError, UnreachableError
from pyspark_nsq.source.http import NodeConnection, Patience, passes
from pyspark_nsq.source.options import SourceOptions
from pyspark_nsq.source.reasons import explain_lookup

# A topic, and the address of an nsqd that has it.
TopicNode = tuple[str, str]

# An nsqlookupd that was started is ready after its --reconnect-interval, by default 15 s.
_READY_S: Final = 20.0

log: Final = logging.getLogger("pyspark_nsq.source")


class SourceDiscovery:
    """Finds the places of the topics."""

    def __init__(self, options: SourceOptions, asking: Asking) -> None:
        self._options = options
        self._asking = asking
        # The name that each nsqd of the fixed list has for itself.
        self._names: dict[str, str] = {}

    def topic_nodes(self, patience_s: float, *, silence_ends: bool = True) -> frozenset[TopicNode] | None:
        """Return the present places of the topics; None if no topic is known.

        An nsqlookupd that does not answer, or has just started, delays the search only if the others do not
        list each topic, and for *patience_s* at most. If none answers then, it raises SourceError, or without
        *silence_ends* returns an empty set.
        """
        if self._options.nsqd_http_addresses:
            return self._listed()
        return self._lookup_all(patience_s, silence_ends=silence_ends)

    def wait_until_listed(self) -> None:
        """Wait until nsqlookupd lists nsqds with the topics, and is not one that has just started.

        For a read that happens once: while an nsqd or nsqlookupd restarts, it would be incomplete or empty.
        Raises SourceError when retryTimeout are over, unless data loss is accepted.
        """
        options = self._options
        if options.nsqd_http_addresses:
            return
        patience_s = options.retry_s if options.fail_on_data_loss else 0.0
        for why, seconds in (
            (self._why_unready, max(patience_s, _READY_S) if patience_s else 0.0),
            (self._why_unlisted, patience_s),
        ):
            if reason := self._wait_while(why, Patience(seconds)):
                self._asking.lost(reason, SourceError)

    def lost(self) -> dict[str, tuple[str, frozenset[str]]]:
        """Return the nsqds that nsqlookupd listed within the last five minutes and that are disconnected now.

        By address, the identity of each (empty for nsqds without one) and its topics. The original's
        nsqlookupd does not know them.
        """
        answers = self._asking.ask(self._options.lookupd_http_addresses, self._lost, 0.0)
        found: dict[str, tuple[str, frozenset[str]]] = {}
        for answer in answers.values():
            if isinstance(answer, dict):
                found |= answer
        return found

    def _lost(self, node: NodeConnection) -> dict[str, tuple[str, frozenset[str]]]:
        try:
            nodes = node.get_json(
                "/lookup/lost", [("topic", self._options.topic)], lambda answer: answer["nodes"]
            )
        except NodeError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return {}
        return {
            _http_address(one): (str(one.get("identity", "")), topics)
            for one in nodes
            if (topics := frozenset(filter(self._options.is_chosen, one["topics"])))
        }

    @staticmethod
    def _wait_while(why: Callable[[], str], patience: Patience) -> str:
        """Poll for a reason until there is none, or until *patience* ends; return the last one."""
        while (reason := why()) and patience.pause():
            pass
        return reason

    def _why_unready(self) -> str:
        """Say why no nsqlookupd knows all nsqds yet; empty if one does, or if none answers."""
        reasons = self._readiness()
        if not (reasons and all(reasons.values())):
            return ""  # the search says why none answers
        each = "; ".join(f"{address} {reason}" for address, reason in reasons.items())
        return f"no nsqlookupd that answers knows all nsqds yet, because it has just started: {each}"

    def _readiness(self) -> dict[str, str]:
        """Return why each nsqlookupd that answers is not ready, empty if it is."""
        answers = self._asking.ask(self._options.lookupd_http_addresses, _why_unready, 0.0)
        return {address: one for address, one in answers.items() if isinstance(one, str)}

    def _why_unlisted(self) -> str:
        """Say which topics no nsqd is listed for now; empty if there are none.

        Also empty if no nsqlookupd answers, or if none knows the topic: then the search says so.
        """
        answers = self._asking.ask(self._options.lookupd_http_addresses, self._lookup_one, 0.0)
        answered = [places for places in answers.values() if not isinstance(places, NodeError)]
        if not answered:
            return ""
        missing = self._without_nsqd(frozenset().union(*answered))
        return f"no nsqd that has topic {', '.join(missing)} is listed now" if missing else ""

    def _without_nsqd(self, places: frozenset[TopicNode]) -> list[str]:
        """Return the topics, as sentences name them, that no nsqd of *places* has."""
        if self._options.topic_pattern:
            return [] if places else [self._options.described]
        listed = {topic for topic, _ in places}
        return [repr(topic) for topic in self._options.topics if topic not in listed]

    def _listed(self) -> frozenset[TopicNode]:
        """Return the nsqds of the fixed list by the names under which nsqlookupd lists them.

        A checkpoint uses these names. An nsqd with a second name would be read twice.
        """
        unnamed = [one for one in self._options.nsqd_http_addresses if one not in self._names]
        for address, answer in self._asking.ask(unnamed, _name).items():
            if isinstance(answer, NodeError):
                self._asking.unusable(address, answer)
            else:
                self._names[address] = answer
        return frozenset((topic, name) for name in self._names.values() for topic in self._options.topics)

    def _lookup_all(self, patience_s: float, *, silence_ends: bool) -> frozenset[TopicNode] | None:
        patience = Patience(patience_s)
        while True:
            answers = self._asking.ask(self._options.lookupd_http_addresses, self._lookup_one, 0.0)
            errors = {address: error for address, error in answers.items() if isinstance(error, NodeError)}
            down = {address: error for address, error in errors.items() if error.code != TOPIC_NOT_FOUND}
            found = frozenset[TopicNode]().union(
                *(places for places in answers.values() if not isinstance(places, NodeError))
            )
            # An nsqd registers with all of them, so the others list what one that is down would list.
            is_complete = not self._without_nsqd(found) or not (
                any(map(passes, down.values())) or any(self._readiness().values())
            )
            if is_complete or not patience.pause():
                break
        if down and not found:
            reasons = "; ".join(explain_lookup(address, down[address]) for address in sorted(down))
            who = "no nsqlookupd answered" if len(down) == len(answers) else "not every nsqlookupd answered"
            sentence = f"{who} the search for topic {self._options.described}: {reasons}"
            if silence_ends:
                raise UnreachableError(sentence)
            log.warning("%s; continuing with the nsqd that are known", sentence)
            return frozenset()
        for address, error in down.items():
            log.warning("nsqlookupd %s did not answer, going by the others: %s", address, error)
        is_known = len(errors) < len(answers) if self._options.topic else bool(found)
        return found if is_known else None

    def _lookup_one(self, node: NodeConnection) -> frozenset[TopicNode]:
        """What one nsqlookupd lists."""
        return self._lookup(node) if self._options.topic else self._nodes(node)

    def _lookup(self, node: NodeConnection) -> frozenset[TopicNode]:
        topic = self._options.topic
        producers = node.get_json("/lookup", [("topic", topic)], _producers)
        return frozenset((topic, _http_address(producer)) for producer in producers)

    def _nodes(self, node: NodeConnection) -> frozenset[TopicNode]:
        producers = node.get_json("/nodes", [], _producers)
        return frozenset(
            (topic, _http_address(producer))
            for producer in producers
            for topic, tombstoned in zip(
                producer.get("topics") or (), producer.get("tombstones") or (), strict=False
            )
            if not tombstoned and self._options.is_chosen(topic)
        )


def _why_unready(node: NodeConnection) -> str:
    """Return why an nsqlookupd is not ready; empty if it is."""
    try:
        node.get("/ready", ())
    except NodeError as error:
        if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
            return error.reason
        # The original has no /ready.
        if error.status != HTTPStatus.NOT_FOUND:
            raise
    return ""


def _name(node: NodeConnection) -> str:
    return node.get_json("/info", [], _http_address)


def _producers(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    producers = answer["producers"] or []
    if not isinstance(producers, list):
        raise TypeError("producers is not a list")
    return producers


def _http_address(record: Mapping[str, Any]) -> str:
    host, port = record.get("broadcast_address"), record.get("http_port")
    if not isinstance(host, str) or not host or type(port) is not int or not port:
        raise TypeError("it does not say where it can be reached, as nsqd does")
    return join_host_port(host, port)


def all_nsqds(
    asking: Asking, lookupds: tuple[str, ...], retry_s: float, *, complete: bool = False
) -> list[str]:
    """Return the HTTP addresses of all nsqds that any nsqlookupd lists. Raises SourceError if none does.

    One that was just restarted may list some of them only, and an nsqd that restarts is listed by none. They
    are asked again for *retry_s* only while none lists an nsqd. With *complete* all of them must answer: ids
    must be assigned to the same nsqds each time, and one may list an nsqd that no other lists.
    """
    patience = Patience(retry_s)
    while True:
        answers = asking.ask(lookupds, _all_producers, 0.0)
        errors = {address: one for address, one in answers.items() if isinstance(one, NodeError)}
        listed = {address: one for address, one in answers.items() if not isinstance(one, NodeError)}
        found = set().union(*listed.values())
        if found and not (complete and errors):
            return sorted(found)
        may_pass = any(map(passes, errors.values())) or not all(listed.values())
        if not may_pass or not patience.pause():
            reasons = [explain_lookup(address, error) for address, error in errors.items()]
            if found:
                raise SourceError(
                    f"which nsqds there are for rows with a dedup_id is uncertain: {'; '.join(reasons)}"
                )
            reasons += [f"{address} lists no nsqd" for address in listed]
            raise SourceError(f"no nsqd was found: {'; '.join(reasons)}")


def _all_producers(node: NodeConnection) -> list[str]:
    return [_http_address(producer) for producer in node.get_json("/nodes", [], _producers)]
