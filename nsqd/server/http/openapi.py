"""GET /openapi.json: nsqd's HTTP API, described for programs in OpenAPI 3.1."""

from difflib import get_close_matches
from enum import Enum
from typing import Any, Final

from nsqcore.http.api import ApiError, Request, Response, json_reply
from nsqcore.http.openapi import JSON, NAME, PLAIN, TEXT, Arguments, Operation, describe

_OCTETS: Final = "application/octet-stream"
_LINES: Final = "application/x-ndjson"

_NUMBER: Final = {"type": "integer", "minimum": 0}
_TRUTH: Final = {"type": "string", "enum": ["true", "false", "1", "0"]}
_POSITION: Final = "earliest, latest, a sequence, an id, or a time (2026-01-31T12:00:00Z, @1769860800, -7d)"

_ARGUMENTS: Final[Arguments] = {
    "topic": (NAME, "name of a topic"),
    "channel": (NAME, "name of a channel"),
    "format": ({"type": "string"}, "json for statistics, ndjson for messages a line each"),
    "include_clients": (_TRUTH, "whether clients are listed"),
    "include_mem": (_TRUTH, "whether to list statistics of the process"),
    "defer": (_NUMBER, "milliseconds to wait"),
    "binary": (_TRUTH, "the body is laid out as MPUB has it, not a message a line"),
    "ext": (TEXT, "headers of the message, a JSON object"),
    "start": (TEXT, f"where a new channel begins: {_POSITION}"),
    "to": (TEXT, f"where the channel is set to: {_POSITION}"),
    "from": (TEXT, f"where to begin: {_POSITION}; or the next of the answer before"),
    "sequence": (_NUMBER, "all below it is acknowledged"),
    "end": (_NUMBER, "the sequence behind the last"),
    "headers": (_TRUTH, "frames have the headers of their messages"),
    "direction": ({"type": "string", "enum": ["forward", "back"]}, "which way to go"),
    "limit": ({"type": "integer", "minimum": 1, "maximum": 10_000}, "at most so many"),
    "state": (
        {"type": "string", "enum": ["waiting", "deferred", "in_flight", "dead_lettering", "finished"]},
        "only messages in this state on the channel",
    ),
    "contains": (TEXT, "only messages with this text in their body"),
    "json": (TEXT, "only messages with this value in their JSON: name.name=value, or name alone"),
    "max_body": ({"type": "integer", "minimum": 1}, "of a longer body so many bytes are shown"),
    "log": (TEXT, "instead of this nsqd's own log a promoted copy, by the identity of its origin"),
    "exact": (_TRUTH, "each body as base64, byte for byte"),
    "id": ({"type": "string", "pattern": "^[0-9a-f]{16}$"}, "id of a message"),
    "all": (_TRUTH, "every pending message of the channel"),
    "dry_run": (_TRUTH, "count, and do nothing"),
    "grace": (_NUMBER, "milliseconds in which publishes are accepted"),
    "cancel": (_TRUTH, "take publishes again"),
    "target": (TEXT, "TCP address of the nsqd that takes all logs over, instead of a replica"),
    "fewer_copies": (_TRUTH, "also when fewer replicas than wanted have the messages afterwards"),
    "name": (TEXT, "name of a policy"),
    "apply": (_TRUTH, "also when messages that are kept now are deleted by it"),
    "opt": (TEXT, "name of an option"),
}


# The refusals of requests that name a topic or channel, and of those that name messages.
_NAMED: Final = (400, 404)
_HANDLED: Final = (400, 404, 409, 503)
_SOME: Final = "channel! id all state contains json from direction limit dry_run"
_TOPIC: Final = "topic! "
_CHANNEL: Final = "topic! channel! "

OPERATIONS: Final[dict[tuple[str, str], Operation]] = {
    ("GET", "/ping"): Operation(
        "node", "OK while the node is healthy", answer=PLAIN, refusals=(500,), refused_in=PLAIN
    ),
    ("GET", "/info"): Operation("node", "version, addresses and ports", answer=JSON),
    ("GET", "/stats"): Operation(
        "node",
        "statistics, as text unless format says otherwise",
        "format topic channel include_clients include_mem",
        answer=f"{JSON} {PLAIN}",
    ),
    ("GET", "/config/:opt"): Operation(
        "node",
        "the value of an option; text as text, anything else as JSON",
        "opt!",
        answer=f"{JSON} {PLAIN}",
        refusals=(400,),
    ),
    ("PUT", "/config/:opt"): Operation(
        "node", "change an option while running", "opt!", answer=JSON, body=PLAIN, refusals=(400, 413)
    ),
    ("POST", "/pub"): Operation(
        "publish",
        "publish one message; headers of the request named X-NSQEXT-* are headers of the message",
        "topic! defer",
        answer=PLAIN,
        body=_OCTETS,
        refusals=(400, 413, 429, 503),
    ),
    ("POST", "/mpub"): Operation(
        "publish",
        "publish several messages, a line each",
        "topic! binary",
        answer=PLAIN,
        body=_OCTETS,
        refusals=(400, 413, 429, 503),
    ),
    ("POST", "/pub_ext"): Operation(
        "publish",
        "publish one message with headers",
        "topic! ext defer",
        answer=PLAIN,
        body=_OCTETS,
        refusals=(400, 413, 429, 503),
    ),
    ("POST", "/mpub_ext"): Operation(
        "publish",
        "publish several messages with headers, laid out as MPUB_EXT has them",
        "topic! defer",
        answer=PLAIN,
        body=_OCTETS,
        refusals=(400, 413, 429, 503),
    ),
    ("POST", "/topic/create"): Operation("topics", "create a topic", _TOPIC, refusals=(400,)),
    ("POST", "/topic/delete"): Operation(
        "topics", "delete a topic and its channels", _TOPIC, refusals=_NAMED
    ),
    ("POST", "/topic/empty"): Operation("topics", "drop what waits at the topic", _TOPIC, refusals=_NAMED),
    ("POST", "/topic/pause"): Operation(
        "topics", "hold messages back from channels", _TOPIC, refusals=_NAMED
    ),
    ("POST", "/topic/unpause"): Operation("topics", "let messages flow again", _TOPIC, refusals=_NAMED),
    ("POST", "/channel/create"): Operation(
        "channels",
        "create a channel; with start it gets the stored messages from there on",
        _CHANNEL + "start",
        refusals=(400, 404, 410, 416),
    ),
    ("POST", "/channel/delete"): Operation("channels", "delete a channel", _CHANNEL, refusals=_NAMED),
    ("POST", "/channel/empty"): Operation("channels", "finish the whole backlog", _CHANNEL, refusals=_NAMED),
    ("POST", "/channel/pause"): Operation("channels", "deliver nothing", _CHANNEL, refusals=_NAMED),
    ("POST", "/channel/unpause"): Operation("channels", "deliver again", _CHANNEL, refusals=_NAMED),
    ("POST", "/channel/commit"): Operation(
        "channels",
        "acknowledge all below a sequence",
        _CHANNEL + "sequence! log",
        refusals=(400, 404, 416, 503),
    ),
    ("POST", "/channel/seek"): Operation(
        "channels",
        "make the stored messages from a position on pending, and none before it",
        _CHANNEL + "to!",
        answer=JSON,
        refusals=(400, 404, 410, 416, 503),
    ),
    ("GET", "/log/bounds"): Operation(
        "messages",
        "what can be read, and where each channel stands",
        "topic! channel log",
        answer=JSON,
        refusals=(400, 404),
    ),
    ("GET", "/log/range"): Operation(
        "messages",
        "frames of messages from a sequence on",
        "topic! channel log start! end! headers",
        answer=_OCTETS,
        refusals=(400, 404, 410, 416, 503),
    ),
    ("GET", "/messages"): Operation(
        "messages",
        "look at messages, and at how they stand on a channel, without consuming them",
        "topic! channel log from direction limit state contains json max_body exact format",
        answer=f"{JSON} {_LINES}",
        refusals=(400, 404, 416, 503),
    ),
    ("POST", "/message/finish"): Operation(
        "messages",
        "the channel is done with them",
        _TOPIC + _SOME,
        answer=JSON,
        refusals=_HANDLED,
    ),
    ("POST", "/message/requeue"): Operation(
        "messages",
        "they wait again, now or after a delay",
        _TOPIC + _SOME + " defer",
        answer=JSON,
        refusals=_HANDLED,
    ),
    ("POST", "/message/send"): Operation(
        "messages", "deferred ones wait now", _TOPIC + _SOME, answer=JSON, refusals=_HANDLED
    ),
    ("POST", "/message/cancel"): Operation(
        "messages", "deferred ones never come", _TOPIC + _SOME, answer=JSON, refusals=_HANDLED
    ),
    ("POST", "/dead_letters/send_back"): Operation(
        "messages",
        "dead letters go back to the channel they came from",
        "topic! id from limit contains json dry_run",
        answer=JSON,
        refusals=_HANDLED,
    ),
    ("GET", "/policies"): Operation(
        "policies", "all policies, and which one is in force", "topic channel", answer=JSON, refusals=(400,)
    ),
    ("PUT", "/policies"): Operation(
        "policies",
        "set one policy, or all",
        "name apply dry_run",
        answer=JSON,
        body=JSON,
        refusals=(400, 409, 413),
    ),
    ("DELETE", "/policies"): Operation(
        "policies", "take a policy away", "name! apply", answer=JSON, refusals=(400, 404, 409)
    ),
    ("POST", "/drain"): Operation(
        "node",
        "refuse publishes, so that consumers empty it",
        "grace cancel",
        answer=JSON,
        refusals=(400, 409),
    ),
    ("GET", "/drain"): Operation("node", "what a drain has still to wait for", answer=JSON),
    ("GET", "/replication"): Operation("node", "the replicas of this node, and the copies here", answer=JSON),
    ("POST", "/decommission"): Operation(
        "node",
        "transfer all logs to other nodes",
        "target fewer_copies cancel",
        answer=JSON,
        refusals=(400, 409),
    ),
    ("GET", "/decommission"): Operation("node", "how far the transfer of all logs is", answer=JSON),
    ("GET", "/metrics"): Operation("node", "metrics for Prometheus", answer=PLAIN),
    ("GET", "/live"): Operation(
        "node",
        "the process answers, and no fsync has failed",
        answer=PLAIN,
        refusals=(503,),
        refused_in=PLAIN,
    ),
    ("GET", "/ready"): Operation(
        "node", "publishes are taken", answer=PLAIN, refusals=(503,), refused_in=PLAIN
    ),
    ("GET", "/started"): Operation(
        "node", "what is stored is loaded", answer=PLAIN, refusals=(503,), refused_in=PLAIN
    ),
    ("GET", "/openapi.json"): Operation("node", "this description", answer=JSON),
}


class Needs(Enum):
    """The grants that a request needs with --http-auth."""

    NOTHING = "nothing"
    PUBLISH = "publish, on the topic"
    SUBSCRIBE = "subscribe, on the topic and on the channel (without one: on the empty name)"
    TOPIC = "publish and subscribe on the topic and on all its channels"
    NODE = "publish and subscribe on every topic and channel"


_NEEDS_BY_TAG: Final = {
    "publish": Needs.PUBLISH,
    "topics": Needs.TOPIC,
    "channels": Needs.SUBSCRIBE,
    "messages": Needs.SUBSCRIBE,
}
# Operations on the node and on policies need nothing to read, and NODE to change anything.
NEEDS: Final = {
    key: _NEEDS_BY_TAG.get(operation.tag, Needs.NOTHING if key[0] == "GET" else Needs.NODE)
    for key, operation in OPERATIONS.items()
} | {
    ("POST", "/topic/create"): Needs.PUBLISH,
    # NODE, because it publishes to other topics.
    ("POST", "/dead_letters/send_back"): Needs.NODE,
}


def refuse_unknown(request: Request, method: str, pattern: str) -> None:
    """Raise ApiError for an argument that the route does not have: a misspelt filter would select everything.

    Only for routes that the original does not have; the others ignore unknown arguments.
    """
    known = [name.rstrip("!") for name in OPERATIONS[method, pattern].arguments.split()]
    for name in request.query:
        if name not in known:
            near = get_close_matches(name, known, 1)
            meant = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
            raise ApiError(400, f"INVALID_ARG: there is no argument {name[:30]!r}{meant}")


async def openapi(_request: Request) -> Response:
    """Answer with the whole description."""
    return json_reply(description())


def description() -> dict[str, Any]:
    """OpenAPI 3.1, as a value."""
    return describe(
        "nsqd",
        "Endpoints of NSQ's nsqd, and those that are added to them.",
        OPERATIONS,
        _ARGUMENTS,
        {
            key: f"With --http-auth the secret has to grant: {need.value}."
            for key, need in NEEDS.items()
            if need is not Needs.NOTHING
        },
    )
