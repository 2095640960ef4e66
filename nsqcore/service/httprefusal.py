"""What a request that is no HTTP is told: the statuses of Go's server, in one plain line."""

import re
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import BadStatusLine, HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

_BAD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")


class StrictServer(web.Server):
    """aiohttp's low-level server, whose connections answer malformed requests as NSQ's clients know it."""

    def __call__(self) -> RequestHandler:
        return _StrictHandler(self, loop=self._loop, **self._kwargs)


class _StrictHandler(RequestHandler):
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        reply = super().handle_error(request, status, exc, message)
        refusal = _status(exc)
        if refusal is not None and isinstance(reply, web.Response):
            reply.set_status(refusal)
            reply.text = f"{refusal.value} {refusal.phrase}"
            reply.content_type = "text/plain"
        return reply


def has_bad_escape(path: str) -> bool:
    """Whether a ``%`` in a path is no escape, which aiohttp lets through."""
    return _BAD_ESCAPE.search(path) is not None


def _status(error: BaseException | None) -> HTTPStatus | None:
    """Tell which kind of nonsense it was; None when it was none."""
    if isinstance(error, LineTooLong):
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    if "`Transfer-Encoding`" in str(error):
        return HTTPStatus.NOT_IMPLEMENTED
    if isinstance(error, BadStatusLine) and "Invalid HTTP version" in str(error):
        return HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
    return HTTPStatus.BAD_REQUEST if isinstance(error, HttpProcessingError) else None
