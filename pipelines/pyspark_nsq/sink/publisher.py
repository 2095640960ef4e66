"""Publishing from an executor: to the nsqds in turn, and to the next one if one is away."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from zlib import crc32

from nsqclient.wire.node_error import NodeError
from pyspark_nsq.sink.options import SinkOptions
from pyspark_nsq.sink.outgoing import Outgoing
from pyspark_nsq.source.asking import Asking
from pyspark_nsq.source.discovery import all_nsqds
from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.http import NodeConnection, NodeConnections, Patience
from pyspark_nsq.source.reasons import explain_while_written

# An nsqd that did not answer may be frozen, and then each request to it takes requestTimeout.
_SILENCE_S: Final = 30.0
# Codes of an nsqd that refuses messages which another nsqd, or the same one later, may accept.
_ELSEWHERE: Final = frozenset(("EXITING", "DRAINING", "E_EXITING"))
_TOPIC_FULL: Final = 429  # a policy of this nsqd bounds the topic


class Publisher:
    """Publishes until it gets ``OK``. Messages may arrive twice, but never less than once."""

    def __init__(self, options: SinkOptions, turn: int, nsqds: Sequence[str] = ()) -> None:
        """*turn* chooses the first node, so that partitions begin with different ones.

        *nsqds* are those of the cluster; without them the publisher finds them.
        """
        self._options = options
        self._connections = NodeConnections(options)
        self._asking = Asking(options)
        self._addresses = list(nsqds) or self._find(options.retry_s)
        # The nsqds that ids are assigned to, found with the first id. They stay the same: an nsqd that
        # restarts is not listed for a moment, and its ids must wait for it.
        self._owners = tuple(nsqds)
        # Until when an nsqd that did not answer is the last choice.
        self._silent: dict[str, float] = {}
        self._turn = turn
        self._max_body: int | None = None
        self._has_asked_limits = False
        self.messages = 0
        # Messages of requests that got no answer and were sent again, so they may exist twice.
        self.resent = 0

    def publish(self, one: Outgoing) -> None:
        """Publish *one*. Raises SourceError if no nsqd accepts it."""
        patience = Patience(self._options.retry_s)
        while (error := self._round(one)) is not None:
            if not patience.pause():
                raise SourceError(
                    f"no nsqd took the messages for topic {one.topic!r} within {self._options.retry_s:g} s; "
                    f"the last answer: {explain_while_written(error.address, error)}; "
                    f"{self.messages} messages of this partition are published and will be published again "
                    "when the task is repeated"
                )
            if self._options.lookupd_http_addresses and one.group is None:
                # Those that are known may be back before an nsqlookupd lists them, or while none answers.
                with suppress(SourceError):
                    self._addresses = self._find(0.0)
        self.messages += one.messages

    def max_body(self) -> int | None:
        """Return the size in bytes of the largest body that all nsqds accept; None if none says it.

        They are asked once, because one that is frozen takes requestTimeout.
        """
        if not self._has_asked_limits:
            self._has_asked_limits = True
            answers = self._asking.ask(self._addresses, _max_msg_size, 0.0).values()
            self._max_body = min((one for one in answers if isinstance(one, int)), default=None)
        return self._max_body

    def close(self) -> None:
        self._connections.close()
        self._asking.close()

    def _round(self, one: Outgoing) -> NodeError | None:
        """Offer *one* to each node once; return the last error, or None if a node accepted it."""
        last: NodeError | None = None
        for address in self._candidates(one):
            node = self._connections.node(address, 0.0)
            unanswered = node.unanswered
            try:
                _send(node, one)
            except NodeError as error:
                if not _passes(error):
                    raise SourceError(
                        f"{explain_while_written(address, error)} (topic {one.topic!r})"
                    ) from error
                last = error
                if error.unreachable:
                    self._silent[address] = time.monotonic() + _SILENCE_S
            else:
                return None
            finally:
                if node.unanswered > unanswered:
                    # The messages may have been stored before the answer was lost.
                    self.resent += one.messages
        return last

    def _candidates(self, one: Outgoing) -> list[str]:
        """Return the nodes that may get *one*, the first choice first."""
        if one.group is not None:
            self._owners = self._owners or tuple(certain_nsqds(self._options, self._asking))
            # Only this node knows which ids were published before. The nodes of the other groups stay the
            # same when a node comes or goes.
            return [max(self._owners, key=lambda address: crc32(f"{one.group} {address}".encode()))]
        self._turn += 1
        at = self._turn % len(self._addresses)
        now = time.monotonic()
        return sorted(
            (*self._addresses[at:], *self._addresses[:at]),
            key=lambda address: self._silent.get(address, 0.0) > now,
        )

    def _find(self, retry_s: float) -> list[str]:
        """Return the nsqds of the cluster. Raises SourceError if there are none for *retry_s*."""
        if self._options.nsqd_http_addresses:
            return list(self._options.nsqd_http_addresses)
        return all_nsqds(self._asking, self._options.lookupd_http_addresses, retry_s)


def certain_nsqds(options: SinkOptions, asking: Asking) -> list[str]:
    """Return the nsqds that ids are assigned to. Raises SourceError if the list may be incomplete."""
    if options.nsqd_http_addresses:
        return list(options.nsqd_http_addresses)
    return all_nsqds(asking, options.lookupd_http_addresses, options.retry_s, complete=True)


def _passes(error: NodeError) -> bool:
    """Whether another nsqd, or the same one later, may accept the messages."""
    status = error.status or 0
    return error.unreachable or error.code in _ELSEWHERE or status == _TOPIC_FULL or status >= 500


def check_dedup_window(options: SinkOptions, asking: Asking, nsqds: Sequence[str]) -> None:
    """Raise SourceError if an nsqd has no ``dedup_window`` in force for the topic of the options.

    It would store a row with a ``dedup_id`` again when the row is written again.
    """

    def has_window(node: NodeConnection) -> bool:
        return node.get_json("/policies", [("topic", options.topic)], _has_window)

    for address, answer in asking.ask(nsqds, has_window, options.retry_s).items():
        if isinstance(answer, NodeError):
            raise SourceError(explain_while_written(address, answer)) from answer
        if not answer:
            raise SourceError(
                f"the rows have a dedup_id, but nsqd {address} has no policy with a dedup_window for topic "
                f"{options.topic!r}, so it would store rows twice; set one, or leave the column out"
            )


def _has_window(answer: Mapping[str, Any]) -> bool:
    return "dedup_window" in answer["in_force"]["definition"]


def _max_msg_size(node: NodeConnection) -> int | None:
    try:
        return int(node.get("/config/max_msg_size", []).body)
    except ValueError:
        return None


def _send(node: NodeConnection, one: Outgoing) -> None:
    if one.extended:
        delay = [("defer", str(one.defer_ms))] if one.defer_ms else []
        node.post("/mpub_ext", [("topic", one.topic), *delay], one.content)
    elif one.defer_ms:
        node.post("/pub", [("topic", one.topic), ("defer", str(one.defer_ms))], one.content)
    else:
        node.post("/mpub", [("topic", one.topic), ("binary", "true")], one.content)
