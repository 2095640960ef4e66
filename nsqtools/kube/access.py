"""The few calls, each repeated for a bounded time while the API server is busy or cannot be reached."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import urllib3
from kubernetes import client, config, watch

T = TypeVar("T")

# The time-outs for connecting and for reading.
_CALL_SECONDS: Final = (3.0, 5.0)
# The first pause after a failure; each further one is twice as long.
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 8.0
_BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})
# A watch is started again after so long, even if the server keeps it open.
_WATCH_SECONDS: Final = 60


class ApiFailed(Exception):
    """The API gave no usable answer; the text is one sentence."""


class Forbidden(ApiFailed):
    """The pod's account may not do this."""


class NotFound(ApiFailed):
    """The object does not exist."""


class KubeApi:
    """Repeats calls until *patience_s* is over; make one object for each task."""

    def __init__(
        self,
        api: client.ApiClient,
        patience_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._core = client.CoreV1Api(api)
        self._apps = client.AppsV1Api(api)
        self._clock = clock
        self._sleep = sleep
        self._until = clock() + patience_s

    @property
    def left_s(self) -> float:
        """The seconds until calls give up."""
        return self._until - self._clock()

    def node_labels(self, name: str) -> dict[str, str]:
        """Return the labels of a node. Raises ApiFailed."""
        node = self._ask(f"read node {name}", lambda **more: self._core.read_node(name, **more))
        return dict((node.metadata and node.metadata.labels) or {})

    def service(self, namespace: str, name: str) -> Any:
        """Return a Service. Raises ApiFailed."""
        return self._ask(
            f"read Service {name}", lambda **more: self._core.read_namespaced_service(name, namespace, **more)
        )

    def changes_of_service(self, namespace: str, name: str, version: str) -> Iterator[Any]:
        """Yield a Service whenever it changes, until the server or the time ends it. Raises ApiFailed."""
        seconds = max(1, min(_WATCH_SECONDS, round(self.left_s)))
        stream = watch.Watch().stream(
            self._core.list_namespaced_service,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
            resource_version=version,
            timeout_seconds=seconds,
            # The server ends the watch; this time-out is for a server that vanished silently.
            _request_timeout=(_CALL_SECONDS[0], seconds + _CALL_SECONDS[1]),
        )
        failed = None
        try:
            for event in stream:
                yield event["object"]
        except client.ApiException as error:
            # 410: *version* is too old. The caller reads the Service again and is up to date.
            if error.status not in _BUSY | {410}:
                raise _failure(f"watch Service {name}", error) from error
            failed = error
        except (urllib3.exceptions.HTTPError, OSError):
            pass
        # A pause, in case the server ends each watch immediately.
        if not self._pause(0, failed):
            self._sleep(max(0.0, self.left_s))

    def ordinals(self, namespace: str, stateful_set: str) -> range:
        """Return the numbers of the pods that a StatefulSet is to have. Raises ApiFailed."""
        found = self._ask(
            f"read StatefulSet {stateful_set}",
            lambda **more: self._apps.read_namespaced_stateful_set(stateful_set, namespace, **more),
        )
        spec = found.spec
        first = (spec and spec.ordinals and spec.ordinals.start) or 0
        return range(first, first + ((spec and spec.replicas) or 0))

    def warn(
        self, namespace: str, about: client.V1ObjectReference, reason: str, message: str, reporter: str
    ) -> None:
        """Write an event of type Warning. Raises ApiFailed."""
        now = datetime.now(UTC)
        event = client.CoreV1Event(
            metadata=client.V1ObjectMeta(generate_name=f"{reporter}.", namespace=namespace),
            involved_object=about,
            type="Warning",
            reason=reason,
            # The API accepts no longer message.
            message=message[:1024],
            first_timestamp=now,
            last_timestamp=now,
            count=1,
            source=client.V1EventSource(component="nsqd"),
            reporting_component="nsqd",
            reporting_instance=reporter,
        )
        self._ask(
            "create an event",
            lambda **more: self._core.create_namespaced_event(namespace, event, **more),
            # 409: the generated name already exists; the next try has another one.
            again=frozenset({409}),
        )

    def _ask(self, what: str, call: Callable[..., T], again: frozenset[int] = frozenset()) -> T:
        tries = 0
        while True:
            try:
                return call(_request_timeout=_CALL_SECONDS)
            except client.ApiException as error:
                failed = error
                sentence = _failure(what, error)
                if error.status not in _BUSY | again:
                    raise sentence from error
            except (urllib3.exceptions.HTTPError, OSError) as error:
                failed = None
                sentence = ApiFailed(f"cannot {what}: {_reason(error)}")
            except ValueError as error:
                raise ApiFailed(f"cannot {what}: the answer is not what the API promises") from error
            if not self._pause(tries, failed):
                raise sentence
            tries += 1

    def _pause(self, tries: int, failed: client.ApiException | None) -> bool:
        """Wait before the next try, as long as the server asks for; False when no time is left after that."""
        pause = min(_FIRST_PAUSE_S * 2**tries, _LONGEST_PAUSE_S)
        asked = failed.headers.get("Retry-After", "") if failed is not None and failed.headers else ""
        if asked.isdigit():
            pause = float(asked)
        if pause >= self.left_s:
            return False
        self._sleep(pause)
        return True


def in_cluster(patience_s: float) -> KubeApi:
    """Use the account of this pod. Raises ApiFailed."""
    settings = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=settings)
    except config.ConfigException as error:
        raise ApiFailed(f"cannot use the account of this pod: {error}") from error
    # KubeApi repeats calls itself, because it limits their time.
    settings.retries = False
    return KubeApi(client.ApiClient(settings), patience_s)


def _failure(what: str, error: client.ApiException) -> ApiFailed:
    kind = {403: Forbidden, 404: NotFound}.get(error.status, ApiFailed)
    reason = {
        401: "the token of this pod is not accepted",
        403: "the account of this pod may not",
        404: "it does not exist",
    }.get(error.status, f"the API server says {error.status} {error.reason or ''}".strip())
    return kind(f"cannot {what}: {reason}")


def _reason(error: Exception) -> str:
    return f"the API server does not answer ({type(error).__name__})"
