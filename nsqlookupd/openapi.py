"""GET /openapi.json: nsqlookupd's HTTP API, described for programs in OpenAPI 3.1."""

from typing import Any, Final

from nsqcore.http.openapi import JSON, NAME, PLAIN, TEXT, Arguments, Operation, describe

_ARGUMENTS: Final[Arguments] = {
    "topic": (NAME, "name of a topic"),
    "channel": (NAME, "name of a channel"),
    "identity": (TEXT, "identities of nsqds, each of 32 hexadecimal digits, joined by commas"),
    "node": (TEXT, "an nsqd, as BROADCAST_ADDRESS:HTTP_PORT"),
}

_TOPIC: Final = ("400 MISSING_ARG_TOPIC", "400 INVALID_ARG_TOPIC")
_CHANNEL: Final = (*_TOPIC, "400 MISSING_ARG_CHANNEL", "400 INVALID_ARG_CHANNEL")

OPERATIONS: Final = {
    ("GET", "/lookup"): Operation(
        "reading",
        "where a topic can be read: its channels and its nsqds",
        "topic!",
        answer=JSON,
        refusals=("400 MISSING_ARG_TOPIC", "404 TOPIC_NOT_FOUND"),
    ),
    ("GET", "/lookup/producers"): Operation(
        "reading",
        "where messages can be published now: the nsqds that neither drain nor are unhealthy; with topic "
        "also without those that are tombstoned for it",
        "topic",
        answer=JSON,
        refusals=("400 INVALID_ARG_TOPIC",),
    ),
    ("GET", "/lookup/nodes"): Operation(
        "reading",
        "the nsqds with these identities and their present addresses, without topics; without identity the "
        "nsqds that accept replicas",
        "identity",
        answer=JSON,
        refusals=("400 INVALID_ARG_IDENTITY",),
    ),
    ("GET", "/lookup/lost"): Operation(
        "reading",
        "the nsqds that disconnected within the last --inactive-producer-timeout and are not back, each with "
        "its topics and the seconds since then; with topic those that had it, without their other topics",
        "topic",
        answer=JSON,
    ),
    ("GET", "/topics"): Operation("reading", "all topics", answer=JSON),
    ("GET", "/channels"): Operation(
        "reading",
        "the channels of a topic; an unknown topic has none",
        "topic!",
        answer=JSON,
        refusals=("400 MISSING_ARG_TOPIC",),
    ),
    ("GET", "/nodes"): Operation("reading", "all nsqds, with their topics and tombstones", answer=JSON),
    ("GET", "/debug"): Operation(
        "reading", "every registration as it is stored, or those of one topic", "topic", answer=JSON
    ),
    ("POST", "/topic/create"): Operation(
        "changing", "register a topic, without an nsqd", "topic!", refusals=_TOPIC
    ),
    ("POST", "/topic/delete"): Operation(
        "changing",
        "forget a topic and its channels, if they are known; every nsqd keeps them",
        "topic!",
        refusals=_TOPIC,
    ),
    ("POST", "/topic/tombstone"): Operation(
        "changing",
        "leave an nsqd out of the lookups of a topic for --tombstone-lifetime, if it has the topic",
        "topic! node!",
        refusals=(*_TOPIC, "400 MISSING_ARG_NODE"),
    ),
    ("POST", "/channel/create"): Operation(
        "changing", "register a channel and its topic, without an nsqd", "topic! channel!", refusals=_CHANNEL
    ),
    ("POST", "/channel/delete"): Operation(
        "changing",
        "forget a channel; every nsqd keeps it",
        "topic! channel!",
        refusals=(*_CHANNEL, "404 CHANNEL_NOT_FOUND"),
    ),
    ("GET", "/ping"): Operation("process", "the process answers", answer=PLAIN),
    ("GET", "/ready"): Operation(
        "process",
        "answers to lookups are complete; for a while after a start they are not, and the refusal says why",
        answer=PLAIN,
        refusals=(503,),
        refused_in=PLAIN,
    ),
    ("GET", "/info"): Operation("process", "version and build", answer=JSON),
    ("GET", "/metrics"): Operation("process", "metrics for Prometheus", answer=PLAIN),
    ("GET", "/openapi.json"): Operation("process", "this description", answer=JSON),
}


def description() -> dict[str, Any]:
    """OpenAPI 3.1, as a value."""
    return describe(
        "nsqlookupd",
        "Endpoints of NSQ's nsqlookupd, and those that are added to them.",
        OPERATIONS,
        _ARGUMENTS,
    )
