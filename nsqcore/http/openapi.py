"""A daemon's HTTP API as OpenAPI 3.1, made from a table with one operation for each route; PURE."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from nsqclient.wire.version import NSQ_VERSION
from nsqcore.http.api import JSON_TYPE, TEXT_TYPE

PLAIN: Final = TEXT_TYPE.partition(";")[0]
JSON: Final = JSON_TYPE.partition(";")[0]

TEXT: Final = {"type": "string"}
NAME: Final = {
    "type": "string",
    "pattern": "^[.a-zA-Z0-9_-]+(#ephemeral)?$",
    "minLength": 1,
    "maxLength": 64,
}

# Name of an argument, or of a member of a body -> its schema and its meaning.
Arguments: TypeAlias = Mapping[str, tuple[dict[str, Any], str]]
# Method and pattern of a route.
Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Operation:
    """What one route does. Names of required arguments and members end in ``!``."""

    tag: str
    summary: str
    arguments: str = ""
    answer: str = ""
    """Media types; empty: no body."""
    body: str = ""
    """Media type."""
    members: str = ""
    """The members of a body that is a JSON object."""
    refusals: tuple[int | str, ...] = ()
    """Statuses; where the possible codes are known, each behind its status: ``404 TOPIC_NOT_FOUND``."""
    refused_in: str = JSON
    """Media type of refusals."""


def describe(
    daemon: str,
    description: str,
    operations: Mapping[Key, Operation],
    arguments: Arguments,
    grants: Mapping[Key, str] | None = None,
) -> dict[str, Any]:
    """Return the whole description; *grants* has a sentence for each route that may ask for a secret."""
    paths: dict[str, dict[str, Any]] = {}
    for (method, pattern), operation in operations.items():
        path = "/".join(f"{{{part[1:]}}}" if part[:1] == ":" else part for part in pattern.split("/"))
        grant = (grants or {}).get((method, pattern), "")
        paths.setdefault(path, {})[method.lower()] = _described(method, pattern, operation, arguments, grant)
    return {
        "openapi": "3.1.0",
        "info": {"title": daemon, "version": NSQ_VERSION, "description": description},
        "paths": paths,
        "components": {
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["message"],
                    "properties": {"message": {"type": "string", "description": "CODE, or CODE: a sentence"}},
                }
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}} if grants else {},
        },
    }


def _described(
    method: str, pattern: str, operation: Operation, arguments: Arguments, grant: str
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "operationId": method.lower() + "".join(part.strip(":").title() for part in pattern.split("/")),
        "parameters": [_parameter(name, pattern, arguments) for name in operation.arguments.split()],
        "responses": {
            "200": _answer(operation),
            **_refusals(operation, (401, 403) if grant else ()),
        },
    }
    if operation.body:
        schema = _members(operation.members.split(), arguments) if operation.members else {}
        found["requestBody"] = {"required": True, "content": {operation.body: {"schema": schema}}}
    if grant:
        # The secret is not always needed.
        found["security"] = [{"bearer": []}, {}]
        found["description"] = grant
    return found


def _answer(operation: Operation) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "done"}
    if operation.answer:
        answer["content"] = {kind: {"schema": {}} for kind in operation.answer.split()}
    return answer


def _refusals(operation: Operation, more: tuple[int, ...]) -> dict[str, Any]:
    codes: dict[str, list[str]] = {}
    for refusal in (*operation.refusals, *more):
        status, _, code = str(refusal).partition(" ")
        codes.setdefault(status, []).extend([code] if code else [])
    kind = operation.refused_in
    error = {"schema": {"$ref": "#/components/schemas/Error"} if kind == JSON else {}}
    return {
        status: {
            "description": ", ".join(codes[status]) or "refused",
            "content": {kind: error},
            **({"x-codes": codes[status]} if codes[status] else {}),
        }
        for status in sorted(codes)
    }


def _members(members: list[str], arguments: Arguments) -> dict[str, Any]:
    described = {}
    for member in members:
        schema, meaning = arguments[member.rstrip("!")]
        described[member.rstrip("!")] = {**schema, "description": meaning}
    return {
        "type": "object",
        "required": [member.rstrip("!") for member in members if member.endswith("!")],
        "properties": described,
    }


def _parameter(argument: str, pattern: str, arguments: Arguments) -> dict[str, Any]:
    name = argument.rstrip("!")
    schema, meaning = arguments[name]
    return {
        "name": name,
        "in": "path" if f":{name}" in pattern.split("/") else "query",
        "required": argument.endswith("!"),
        "schema": schema,
        "description": meaning,
    }
