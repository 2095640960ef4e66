"""Queries many nodes in parallel over keep-alive connections. Handles nodes without a usable answer."""

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from nsqclient.wire.node_error import NodeError
from pyspark_nsq.source.errors import SourceError, UnreachableError
from pyspark_nsq.source.http import NodeConnection, NodeConnections
from pyspark_nsq.source.options import NodeOptions
from pyspark_nsq.source.reasons import explain

T = TypeVar("T")

# The number of parallel requests.
_PARALLEL: Final = 16

log: Final = logging.getLogger("pyspark_nsq.source")


class Asking:
    """Asks the nodes of the cluster on behalf of the driver."""

    def __init__(self, options: NodeOptions) -> None:
        self._options = options
        self._connections = NodeConnections(options)
        self._threads: ThreadPoolExecutor | None = None

    def __reduce__(self) -> tuple[type["Asking"], tuple[NodeOptions]]:
        # Connections and threads cannot be sent to another process.
        return Asking, (self._options,)

    def ask(
        self, addresses: Iterable[str], ask: Callable[[NodeConnection], T], retry_s: float | None = None
    ) -> dict[str, T | NodeError]:
        """Ask all nodes at the same time; return the answer of each, or the error in place of one."""
        if retry_s is None:
            # If missing producers are accepted, do not wait for them; the next batch asks again.
            retry_s = self._options.retry_s if self._options.fail_on_data_loss else 0.0

        def settle(node: NodeConnection) -> T | NodeError:
            try:
                return ask(node)
            except NodeError as error:
                return error

        asked = sorted(addresses)
        nodes = [self._connections.node(address, retry_s) for address in asked]
        if len(asked) < 2:
            return {address: settle(node) for address, node in zip(asked, nodes, strict=True)}
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max_workers=_PARALLEL, thread_name_prefix="nsq")
        return dict(zip(asked, self._threads.map(settle, nodes), strict=True))

    def unusable(self, name: str, error: NodeError) -> None:
        self.lost(explain(name, error), UnreachableError if error.unreachable else SourceError)

    def lost(self, sentence: str, error: type[SourceError]) -> None:
        """Raise *error*, or log *sentence* if data loss is accepted."""
        if self._options.fail_on_data_loss:
            raise error(f"{sentence} (failOnDataLoss=false continues without it)")
        log.warning("%s; continuing without it", sentence)

    def close(self) -> None:
        self._connections.close()
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None
