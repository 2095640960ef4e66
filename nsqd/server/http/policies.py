"""Policies over HTTP.

    GET    /policies                       all, in order of precedence, with a digest
    GET    /policies?topic=T&channel=C     also what is in force there, and by which policy
    PUT    /policies?name=N                sets one: {"topic": ..., "definition": {...}}
    PUT    /policies                       sets all: {"policies": [...]}, as GET answers
    PUT    /policies?name=N&dry_run=true   only checks whether it could be set
    DELETE /policies?name=N                deletes one

A change that would delete stored messages is refused unless ``apply=true`` confirms it.
"""

from typing import Any, Final

from nsqclient.wire.names import is_valid_name
from nsqcore.http.api import ApiError, Request, Response, json_reply
from nsqcore.process.logs import Log
from nsqd.policies.definition import BadPolicy
from nsqd.policies.policy import Policy
from nsqd.policies.written import from_json, json_of, listed
from nsqd.server.policies import ManagedByFile, Policies, WouldDelete

_BODY_BYTES: Final = 1 << 20


class PoliciesApi:
    """See the module."""

    def __init__(self, policies: Policies, log: Log) -> None:
        self._policies = policies
        self._log = log

    async def get(self, request: Request) -> Response:
        """All policies; and those in force for the topic or channel of the request, if it names one."""
        answer = self._answer()
        topic, channel = request.query.get("topic", ""), request.query.get("channel", "")
        if topic and not is_valid_name(topic):
            raise ApiError(400, "INVALID_ARG_TOPIC")
        if channel and not (topic and is_valid_name(channel)):
            raise ApiError(400, "INVALID_ARG_CHANNEL" if topic else "MISSING_ARG_TOPIC")
        if topic:
            policy = self._policies.all.in_force(topic, channel)
            answer["in_force"] = {
                "topic": topic,
                "channel": channel,
                "policy": policy.name if policy else None,
                "definition": policy.definition if policy else {},
            }
        return json_reply(answer)

    async def put(self, request: Request) -> Response:
        """Set one policy, or all that are set over HTTP."""
        apply = request.flag("apply")
        name = request.query.get("name")
        body = await request.read(_BODY_BYTES)
        try:
            policies = from_json(body) if name is None else [Policy(name, json_of(body))]
        except BadPolicy as error:
            raise ApiError(400, str(error)) from error
        try:
            await self._policies.put(
                policies, exclusive=name is None, apply=apply, dry=request.flag("dry_run")
            )
        except (ManagedByFile, WouldDelete, BadPolicy, OSError) as error:
            raise self._refused(error) from error
        return json_reply(self._answer())

    async def delete(self, request: Request) -> Response:
        """Delete a policy that was set over HTTP."""
        apply = request.flag("apply")
        name = request.require("name")
        try:
            await self._policies.delete(name, apply=apply)
        except KeyError as error:
            raise ApiError(404, "POLICY_NOT_FOUND") from error
        except (ManagedByFile, WouldDelete, BadPolicy, OSError) as error:
            raise self._refused(error) from error
        return json_reply(self._answer())

    def _refused(self, error: Exception) -> ApiError:
        if isinstance(error, OSError):
            self._log.error("failed to write policies - %s", error)
            return ApiError(503, "NOT_STORED")
        return ApiError(400 if isinstance(error, BadPolicy) else 409, str(error))

    def _answer(self) -> dict[str, Any]:
        policies = self._policies
        return {
            "digest": policies.all.digest(),
            "policies": [
                {**listed(policy), "from": "file" if policies.comes_from_file(policy) else "http"}
                for policy in policies.all
            ],
        }
