"""``/config/:opt``: read any option, change two of them while running."""

import json
from typing import Final

from nsqadmin.access.rights import is_inside, parse_cidr
from nsqadmin.changes.notify import origin_of
from nsqadmin.changes.runner import ActionRunner
from nsqadmin.options import LiveOptions
from nsqcore.http.api import ApiError, Request, Response, json_reply, text_reply
from nsqcore.http.router import Route
from nsqcore.options.options import config_value
from nsqcore.process.addresses import split_host_port
from nsqcore.process.logs import parse_log_level, without_passwords

VALUE_LIMIT: Final = 1 << 20
# The path of a webhook's address is its secret. No client needs it: nsqadmin itself posts there.
_WEBHOOKS: Final = frozenset({"alert_http_endpoint", "notification_http_endpoint"})


class ConfigApi:
    """Open to the networks of ``-allow-config-from-cidr``; changes also need an admin."""

    def __init__(self, options: LiveOptions, runner: ActionRunner) -> None:
        self._options = options
        self._runner = runner

    def routes(self) -> list[Route]:
        return [Route("GET", "/config/:opt", self.show), Route("PUT", "/config/:opt", self.change)]

    async def show(self, request: Request) -> Response:
        self._check_network(request)
        return self._reply(request.params["opt"])

    async def change(self, request: Request) -> Response:
        self._check_network(request)
        self._runner.check(request, "config")
        body = await request.read(VALUE_LIMIT, "INVALID_VALUE")
        if not body:
            raise ApiError(413, "INVALID_VALUE")
        name = request.params["opt"]
        before = self._options.current
        if name == "nsqlookupd_http_addresses":
            addresses = _addresses(body)
            self._options.set_lookupds(addresses)
            was, now = ", ".join(before.nsqlookupd_http_addresses), ", ".join(addresses)
        elif name == "log_level":
            try:
                level = parse_log_level(body.decode("utf-8", "replace"))
            except ValueError:
                raise ApiError(400, "INVALID_VALUE") from None
            self._options.set_log_level(level)
            was, now = before.log_level.name.lower(), level.name.lower()
        else:
            raise ApiError(400, "INVALID_OPTION")
        self._runner.note(request, f"{name} is now {now}", "config", before={name: was}, after={name: now})
        reply = self._reply(name)
        if self._runner.audit.problem:
            # The body is the value alone, as in NSQ.
            reply.headers["Warning"] = (
                f'199 nsqadmin "the audit lacks this change: {self._runner.audit.problem}"'
            )
        return reply

    def _reply(self, name: str) -> Response:
        try:
            value = config_value(self._options.current, name)
        except KeyError:
            raise ApiError(400, "INVALID_OPTION") from None
        if not isinstance(value, str):
            return json_reply(value)
        return text_reply(origin_of(value) if name in _WEBHOOKS else without_passwords(value))

    def _check_network(self, request: Request) -> None:
        network = parse_cidr(self._options.current.allow_config_from_cidr)
        try:
            # The peer's own address: anybody could send a header that names another one.
            inside = is_inside(network, split_host_port(request.peer)[0])
        except ValueError:
            raise ApiError(400, "INVALID_REMOTE_ADDR") from None
        if not inside:
            raise ApiError(403, "FORBIDDEN")


def _addresses(body: bytes) -> tuple[str, ...]:
    """Read a JSON list of ``host:port``; an empty list is refused, because it would leave no nsqlookupd."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise ApiError(400, "INVALID_VALUE") from None
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise ApiError(400, "INVALID_VALUE")
    try:
        for address in value:
            split_host_port(address)
    except ValueError:
        raise ApiError(400, "INVALID_VALUE") from None
    return tuple(value)
