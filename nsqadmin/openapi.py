"""GET /openapi.json: nsqadmin's routes for programs, described in OpenAPI 3.1. Its pages are for people."""

from typing import Any, Final

from nsqadmin.api.cluster import QUEUE_ACTIONS
from nsqcore.http.openapi import JSON, NAME, PLAIN, TEXT, Arguments, Operation, describe

_ARGUMENTS: Final[Arguments] = {
    "topic": (NAME, "name of a topic"),
    "channel": (NAME, "name of a channel"),
    "node": (TEXT, "an nsqd, as BROADCAST_ADDRESS:HTTP_PORT"),
    "opt": (TEXT, "name of an option, as in the config file"),
    "inactive": (
        {"type": "string", "enum": ["true"]},
        "only topics that nsqlookupd knows and no nsqd offers, each with its channels",
    ),
    "action": ({"type": "string", "enum": [*QUEUE_ACTIONS]}, "what is done to it"),
    "metric": ({"type": "string", "enum": ["rate"]}, "messages per second"),
    "target": (TEXT, "the target in Graphite"),
    "format": ({"type": "string", "enum": ["png", "json", "csv", "raw"]}, "png when it is left out"),
}

_UPSTREAM: Final = "502 UPSTREAM_ERROR"
_TOPIC: Final = ("404 TOPIC_NOT_FOUND", _UPSTREAM)
_CHANNEL: Final = ("404 TOPIC_NOT_FOUND", "404 CHANNEL_NOT_FOUND", _UPSTREAM)
_NODE: Final = ("404 NODE_NOT_FOUND", _UPSTREAM)
_ACTION: Final = ("400 INVALID_ACTION", "413 BODY_TOO_BIG")
_PICTURES: Final = f"image/png {JSON} {PLAIN}"

OPERATIONS: Final = {
    ("GET", "/api/topics"): Operation(
        "topics and channels", "names of all topics", "inactive", answer=JSON, refusals=(_UPSTREAM,)
    ),
    ("POST", "/api/topics"): Operation(
        "topics and channels",
        "create a topic, and a channel where one is named",
        answer=JSON,
        body=JSON,
        members="topic! channel",
        refusals=("400 INVALID_TOPIC", "400 INVALID_CHANNEL", "413 BODY_TOO_BIG", *_TOPIC),
    ),
    ("GET", "/api/topics/:topic"): Operation(
        "topics and channels",
        "statistics of a topic: its sum, its nodes and its channels",
        "topic!",
        answer=JSON,
        refusals=_TOPIC,
    ),
    ("POST", "/api/topics/:topic"): Operation(
        "topics and channels",
        "pause, resume or empty a topic on all its nodes",
        "topic!",
        answer=JSON,
        body=JSON,
        members="action!",
        refusals=(*_ACTION, *_TOPIC),
    ),
    ("DELETE", "/api/topics/:topic"): Operation(
        "topics and channels", "delete a topic everywhere", "topic!", answer=JSON, refusals=_TOPIC
    ),
    ("GET", "/api/topics/:topic/:channel"): Operation(
        "topics and channels",
        "statistics of a channel: its sum, its nodes and its consumers",
        "topic! channel!",
        answer=JSON,
        refusals=_CHANNEL,
    ),
    ("POST", "/api/topics/:topic/:channel"): Operation(
        "topics and channels",
        "pause, resume or empty a channel on all its nodes",
        "topic! channel!",
        answer=JSON,
        body=JSON,
        members="action!",
        refusals=(*_ACTION, *_CHANNEL),
    ),
    ("DELETE", "/api/topics/:topic/:channel"): Operation(
        "topics and channels",
        "delete a channel everywhere",
        "topic! channel!",
        answer=JSON,
        refusals=_CHANNEL,
    ),
    ("GET", "/api/counter"): Operation(
        "topics and channels",
        "how many messages each channel was given on each node",
        answer=JSON,
        refusals=(_UPSTREAM,),
    ),
    ("GET", "/api/nodes"): Operation(
        "nodes", "all nsqds, with their topics", answer=JSON, refusals=(_UPSTREAM,)
    ),
    ("GET", "/api/nodes/:node"): Operation(
        "nodes", "statistics of an nsqd", "node!", answer=JSON, refusals=_NODE
    ),
    ("DELETE", "/api/nodes/:node"): Operation(
        "nodes",
        "tombstone a topic on an nsqd: nsqlookupd hides it, and it is deleted there with its messages",
        "node!",
        answer=JSON,
        body=JSON,
        members="topic!",
        refusals=("400 INVALID_BODY", "400 INVALID_TOPIC", "404 TOPIC_NOT_FOUND", *_NODE),
    ),
    ("GET", "/config/:opt"): Operation(
        "process",
        "the value of an option; text as text, anything else as JSON",
        "opt!",
        answer=f"{JSON} {PLAIN}",
        refusals=("400 INVALID_OPTION", "400 INVALID_REMOTE_ADDR", "403 FORBIDDEN"),
    ),
    ("PUT", "/config/:opt"): Operation(
        "process",
        "change nsqlookupd_http_addresses (a JSON list) or log_level (a word) while it runs",
        "opt!",
        answer=JSON,
        body=PLAIN,
        refusals=(
            "400 INVALID_OPTION",
            "400 INVALID_VALUE",
            "400 INVALID_REMOTE_ADDR",
            "403 FORBIDDEN",
            "413 INVALID_VALUE",
        ),
    ),
    ("GET", "/api/graphite"): Operation(
        "process",
        "the rate of the last whole --statsd-interval, from Graphite",
        "metric! target!",
        answer=JSON,
        refusals=("400 INVALID_ARG_METRIC", "400 INVALID_ARG_TARGET", "500 INTERNAL_ERROR"),
    ),
    ("GET", "/render"): Operation(
        "process",
        "with --proxy-graphite: a picture or data of Graphite, which gets all arguments and gives the status",
        "format",
        answer=_PICTURES,
        refusals=("400 INVALID_ARG_FORMAT", "500 INTERNAL_ERROR"),
    ),
    ("GET", "/ping"): Operation("process", "the process answers", answer=PLAIN),
    ("GET", "/metrics"): Operation("process", "metrics for Prometheus", answer=PLAIN),
    ("GET", "/openapi.json"): Operation("process", "this description", answer=JSON),
}


def description(base_path: str = "") -> dict[str, Any]:
    """OpenAPI 3.1, as a value, for an nsqadmin below *base_path*."""
    found = describe(
        "nsqadmin",
        "The JSON API of NSQ's nsqadmin, and the other routes for programs.",
        OPERATIONS,
        _ARGUMENTS,
    )
    return found | {"servers": [{"url": base_path or "/"}]}
