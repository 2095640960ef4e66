"""One HTTP connection as aiohttp serves it, changed for what NSQ's clients expect.

A client may end its sending side after its request, as ``nc -N`` and some probes do: it is still answered.
Errors that aiohttp answers itself have the words of this project, and no reply names the libraries in use.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from nsqcore.http.api import Response, error_reply, plain_reply

# The most bytes in one line of the head of a request: the request line, or one header.
MAX_LINE_BYTES: Final = 64 << 10


class HttpRequest(web.BaseRequest):
    """A request whose reply does not name libraries and their versions."""

    @classmethod
    def of(
        cls,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> "HttpRequest":
        if isinstance(protocol, HttpConnection):
            protocol.body = payload
            protocol.answering = True
        return cls(message, payload, protocol, writer, task, asyncio.get_running_loop())

    async def _prepare_hook(self, response: Response) -> None:
        response.headers.popall("Server", None)


def connections(
    handler: Callable[[web.BaseRequest], Awaitable[Response]], **options: Any
) -> tuple[web.Server, Callable[[], "HttpConnection"]]:
    """The server that ends all connections at a stop, and the factory of one; *options* are aiohttp's."""
    loop = asyncio.get_running_loop()
    server = web.Server(handler, request_factory=HttpRequest.of)
    return server, lambda: HttpConnection(server, loop=loop, **options)


class HttpConnection(web.RequestHandler):
    """aiohttp's connection; complete requests are answered even after the client has ended its side."""

    __slots__ = ("_ended", "answering", "body")

    def __init__(self, server: web.Server, **options: Any) -> None:
        super().__init__(server, **options)
        self._ended = False
        # A request was begun, and its answer is not written yet. aiohttp itself waits for the next request a
        # moment later, so that it would not notice a client that ends its side in between.
        self.answering = False
        # The body of the request being answered. aiohttp knows it only once the answering task has begun.
        self.body: StreamReader | None = None

    def eof_received(self) -> bool:  # type: ignore[override] # aiohttp's always closes
        """Return True while an answer is pending; the connection is closed after that answer."""
        if self.ssl_context is not None or not (self._messages or self.answering):
            # With TLS the transport closes in any case, and warns when True is returned.
            return False
        self._ended = True
        payload = self._last_payload()
        if payload is not None and not payload.is_eof():
            # The rest of the body will never arrive.
            payload.set_exception(web.RequestPayloadError("the client ended its side within a body"))
        return True

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        # The body refers to this connection: together they would stay until a collection.
        self.body = None

    async def finish_response(
        self, request: web.BaseRequest, resp: Response, start_time: float | None
    ) -> tuple[Response, bool]:
        if self._ended and not self._messages:
            resp.force_close()
        finished = await super().finish_response(request, resp, start_time)
        self.answering = False
        if self._ended and request.content.exception() is not None:
            # Otherwise aiohttp would wait for the rest of the body, and log its error.
            request.content.feed_eof()
        if self._ended and not self._messages:
            # The client may have ended its side while the reply was written.
            self.close()
        return finished

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's words
    ) -> Response:
        """Answer a request that reached no handler, or whose handler failed."""
        if isinstance(exc, HttpProcessingError):
            # The client's mistake: one line is enough, without a traceback.
            reason = exc.message.strip().partition("\n")[0].rstrip(":")
            self.logger.warning("Error handling request from %s - %s", request.remote, reason)
            # Its frames hold the received bytes and the error itself, until a collection.
            exc.__traceback__ = None
        else:
            self.log_exception("Error handling request from %s", request.remote, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of another reply was sent already")
        malformed, too_long = 400, 431
        if isinstance(exc, LineTooLong):
            reply = error_reply(
                too_long, f"HEADER_TOO_LONG: a header or an address has {MAX_LINE_BYTES} bytes at most"
            )
        elif status == malformed:
            reply = plain_reply("400 Bad Request", malformed)
        else:
            reply = error_reply(status, "INTERNAL_ERROR")
        reply.force_close()
        return reply

    def _last_payload(self) -> Any:
        """The body of the last request received."""
        if self._messages:
            return self._messages[-1][1]
        return self.body
