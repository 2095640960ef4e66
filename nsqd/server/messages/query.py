"""The parsed query of a request for messages of a topic or channel. Pure."""

import re
from dataclasses import dataclass
from typing import Any, Final

from nsqcore.http.api import FALSE, TRUE, ApiError
from nsqd.engine.backlog import MessageState
from nsqd.log.cursor import BadPosition, LogPosition, PositionKind, parse_position
from nsqd.log.ids import MessageIds
from nsqd.log.search import All, BadFilter, Contains, JsonValue, parse_json_filter

MAX_LIMIT: Final = 10_000
_DEFAULT_LIMIT: Final = 100
_MAX_BODY: Final = 1 << 30
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
# Where a list in the order of due times continues: after a due time and a sequence.
_CURSOR: Final = re.compile(r"([0-9]{1,19})\.([0-9]{1,18})")
_LINES_TYPE: Final = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """The messages to show.

    *wanted* is None for every message; *behind* a due time and a sequence to continue after.

    A body is cut to *most_body* bytes; with *exact* every body is shown as base64.
    """

    position: LogPosition
    next_from: tuple[int, int] | None
    forward: bool
    limit: int
    state: MessageState | None
    filter: All | None
    max_body: int
    lines: bool
    exact: bool = False

    @property
    def by_due_time(self) -> bool:
        """Whether messages are listed in the order in which they fall due, as deferred ones are."""
        return self.state is MessageState.DEFERRED

    @property
    def filters(self) -> bool:
        """Whether it selects messages by state or content."""
        return self.state is not None or self.filter is not None


def parse_query(query: dict[str, str], accept: str, ids: MessageIds, now_ns: int) -> MessageQuery:
    """Parse the arguments; *accept* is the header, *now_ns* the wall clock's time. Raises ApiError."""
    state = _state(query)
    forward = _direction(query)
    if state is MessageState.DEFERRED and not forward:
        raise refused("DIRECTION", "deferred messages are listed in the order in which they fall due")
    place, behind = _position(query, ids, now_ns, forward=forward, by_due_time=state is MessageState.DEFERRED)
    return MessageQuery(
        position=place,
        next_from=behind,
        forward=forward,
        limit=number(query, "limit", _DEFAULT_LIMIT, MAX_LIMIT),
        state=state,
        filter=_filter(query),
        max_body=number(query, "max_body", _MAX_BODY, _MAX_BODY),
        lines=_in_lines(query, accept),
        exact=truth(query, "exact"),
    )


def refused(argument: str, why: str) -> ApiError:
    """The error for an invalid argument."""
    return ApiError(400, f"INVALID_ARG_{argument}: {why}")


def number(query: dict[str, str], name: str, default: int, most: int) -> int:
    """A whole number from 1 to *most*. Raises ApiError."""
    text = query.get(name)
    if text is None:
        return default
    if not (_NUMBER.fullmatch(text) and 1 <= int(text) <= most):
        raise refused(name.upper(), f"{name} is a number from 1 to {most}, not {text[:30]!r}")
    return int(text)


def truth(query: dict[str, str], name: str) -> bool:
    """True or false; absent is false. Raises ApiError."""
    text = query.get(name, "false")
    if text not in TRUE | FALSE:
        raise refused(name.upper(), f"{name} is true or false, not {text[:30]!r}")
    return text in TRUE


def position_of(text: str, name: str, ids: MessageIds, now_ns: int) -> LogPosition:
    """The place that an argument names. Raises ApiError."""
    try:
        return parse_position(text, ids, now_ns)
    except BadPosition as error:
        raise refused(name.upper(), str(error)) from error


def _state(query: dict[str, str]) -> MessageState | None:
    text = query.get("state", "")
    if not text:
        return None
    try:
        state = MessageState(text)
    except ValueError:
        known = ", ".join(one.value for one in MessageState)
        raise refused("STATE", f"a state is one of {known}, not {text[:30]!r}") from None
    if not query.get("channel"):
        raise refused("STATE", "only on a channel do messages have a state; name the channel")
    return state


def _direction(query: dict[str, str]) -> bool:
    text = query.get("direction", "forward")
    if text not in {"forward", "back"}:
        raise refused("DIRECTION", f"a direction is forward or back, not {text[:30]!r}")
    return text == "forward"


def _position(
    query: dict[str, str], ids: MessageIds, now_ns: int, *, forward: bool, by_due_time: bool
) -> tuple[LogPosition, tuple[int, int] | None]:
    text = query.get("from") or ("earliest" if forward else "latest")
    if by_due_time and (cursor := _CURSOR.fullmatch(text)):
        return LogPosition(PositionKind.EARLIEST), (int(cursor[1]), int(cursor[2]))
    place = position_of(text, "from", ids, now_ns)
    if by_due_time:
        if place.kind not in {PositionKind.EARLIEST, PositionKind.TIME}:
            raise refused("FROM", "deferred messages are listed from a due time, the earliest or a cursor on")
        return place, (place.number - 1, 0) if place.kind is PositionKind.TIME else None
    return place, None


def _in_lines(query: dict[str, str], accept: str) -> bool:
    text = query.get("format") or ("ndjson" if _LINES_TYPE in accept else "json")
    if text not in {"json", "ndjson"}:
        raise refused("FORMAT", f"a format is json or ndjson, not {text[:30]!r}")
    return text == "ndjson"


def _filter(query: dict[str, str]) -> All | None:
    filters: list[Any] = []
    contains, json = query.get("contains"), query.get("json")
    for name, text in (("contains", contains), ("json", json)):
        if text == "":
            # Otherwise an unset variable in a script would select everything.
            raise refused(name.upper(), f"{name} is empty: leave it out to have all")
    if contains is not None:
        filters.append(Contains(contains.encode()))
    if json is not None:
        filters.append(_json_filter(json))
    return All(*filters) if filters else None


def _json_filter(text: str) -> JsonValue:
    try:
        return parse_json_filter(text)
    except BadFilter as error:
        raise refused("JSON", str(error)) from error
