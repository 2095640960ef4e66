"""Answers collected in stages, and the errors for requests without an answer; PURE."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.fanout import Partial

T = TypeVar("T")

NODE_NOT_FOUND: Final = "NODE_NOT_FOUND"


class UpstreamError(Exception):
    """None of the requested nodes answered."""

    def __init__(self, kind: str, errors: Sequence[NodeError]) -> None:
        super().__init__(f"failed to query any {kind}: " + "\n".join(str(error) for error in errors))
        self.kind = kind
        self.errors = tuple(errors)


class UnknownError(Exception):
    """The cluster answered, but the object does not exist. The code is ``TOPIC_NOT_FOUND`` or similar."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A value and, for each stage, the errors of the nodes that did not contribute."""

    value: T
    stages: tuple[tuple[NodeError, ...], ...] = ()

    @property
    def errors(self) -> tuple[NodeError, ...]:
        return tuple(error for stage in self.stages for error in stage)

    @property
    def message(self) -> str:
        """The ``message`` of the JSON API: empty, or a warning that lists every error."""
        return warning(self.stages)


def warning(stages: Sequence[Sequence[NodeError]]) -> str:
    """Join errors as NSQ's API does: lines within a stage, semicolons between stages."""
    texts = ["\n".join(str(error) for error in stage) for stage in stages if stage]
    return "WARNING: " + "; ".join(texts) if texts else ""


def require(partial: Partial[T], kind: str) -> T:
    """Return the value, complete or not. Raises UpstreamError if no node answered."""
    if partial.failed:
        raise UpstreamError(kind, partial.errors)
    return partial.value
