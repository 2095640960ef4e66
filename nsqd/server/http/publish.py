"""POST /pub and /mpub, and their forms with headers, /pub_ext and /mpub_ext."""

import asyncio
import re
from typing import Final

from nsqclient.wire.errors import E_BAD_BODY, E_INVALID_JSON_HEADER, ProtocolError
from nsqclient.wire.names import is_valid_name
from nsqcore.http.api import FALSE, TRUE, ApiError, Request, Response, text_reply
from nsqcore.process.logs import Log
from nsqd.engine.bounds import DiskLow
from nsqd.engine.broker import Broker
from nsqd.engine.topic import Draining, Refused, Topic
from nsqd.log.headers import BadHeaders, checked_extension, extension, split
from nsqd.protocol.batch import Slices, TooLong, read_batch
from nsqd.protocol.lines import MessageTooBig, TextSlices
from nsqd.server.clock import now_ns as clock_ns
from nsqd.server.http.plain_publish import EXTENSION_PREFIX
from nsqd.server.write_batch import NotStored, WriteBatch

_MILLISECONDS: Final = re.compile(r"[+-]?[0-9]{1,19}")
_NS_PER_MS: Final = 1_000_000
# A topic or disk may be full for long; a client that tries again after a second does no harm.
_RETRY_AFTER_S: Final = 1


class PublishApi:
    """Publishing over HTTP; the reply OK means the same as over TCP: stored."""

    def __init__(self, broker: Broker, write_batch: WriteBatch, log: Log) -> None:
        self._broker = broker
        self._write_batch = write_batch
        self._log = log

    async def pub(self, request: Request) -> Response:
        """Publish the body as one message; ``defer`` delays its delivery by that many milliseconds.

        Headers of the request that begin with ``X-NSQEXT-`` are headers of the message, named by the rest in
        lower case.
        """
        return await self._publish(request, _headers_of(request))

    async def pub_ext(self, request: Request) -> Response:
        """Publish one message, with headers in ``ext``, a JSON object; those of the request override them."""
        return await self._publish(request, _headers_of(request), request.query.get("ext"))

    async def _publish(self, request: Request, headers: dict[str, str], ext: str | None = None) -> Response:
        body = await request.read(self._broker.limits.max_msg_size, "MSG_TOO_BIG")
        if not body:
            raise ApiError(400, "MSG_EMPTY")
        self._refuse_while_draining()
        try:
            extension = _extension(headers, ext) if headers or ext is not None else b""
        except BadHeaders as error:
            raise ApiError(400, f"E_INVALID_JSON_HEADER invalid headers: {error}") from error
        topic = self._topic(request)
        delay_ns = self._delay_ns(request)
        now_ns = clock_ns()
        try:
            topic.stage(body, now_ns, now_ns + delay_ns if delay_ns else 0, extension)
        except Refused as refused:
            raise _refusal(refused) from refused
        return await self._stored(topic)

    async def mpub(self, request: Request) -> Response:
        """Publish each line of the body, or with ``binary`` a body laid out as MPUB has it after its size."""
        topic, body = await self._body_of_batch(request)
        if not self._is_binary(request):
            limit = self._broker.limits.max_msg_size
            return await self._stored_in_slices(topic, TextSlices(body, limit))
        return await self._publish_batch(topic, body)

    async def mpub_ext(self, request: Request) -> Response:
        """Publish a body laid out as MPUB_EXT has it after its size; ``defer`` delays all messages."""
        delay_ns = self._delay_ns(request)
        topic, body = await self._body_of_batch(request)
        return await self._publish_batch(topic, body, extended=True, delay_ns=delay_ns)

    async def _body_of_batch(self, request: Request) -> tuple[Topic, bytes]:
        limits = self._broker.limits
        declared = request.content_length
        if declared is not None and declared > limits.max_body_size:
            raise ApiError(413, "BODY_TOO_BIG", close=True)
        topic = self._topic(request)
        body = await request.read(limits.max_body_size, "BODY_TOO_BIG")
        self._refuse_while_draining()
        return topic, body

    async def _publish_batch(
        self, topic: Topic, body: bytes, *, extended: bool = False, delay_ns: int = 0
    ) -> Response:
        limits = self._broker.limits
        now_ns = clock_ns()
        due_ns = now_ns + delay_ns if delay_ns else 0
        try:
            batch, _ = read_batch(
                body,
                0,
                max_msg_size=limits.max_msg_size,
                max_body_size=limits.max_body_size,
                extended=extended,
            )
            topic.stage_batch(batch, now_ns, due_ns=due_ns)
        except TooLong as long:
            return await self._stored_in_slices(topic, long.slices, due_ns)
        except ProtocolError as error:
            raise _bad_binary(error) from error
        except Refused as refused:
            raise _refusal(refused) from refused
        return await self._stored(topic)

    def _refuse_while_draining(self) -> None:
        if self._broker.draining:
            raise _refusal(Draining())

    def _topic(self, request: Request) -> Topic:
        name = request.require("topic")
        if not is_valid_name(name):
            raise ApiError(400, "INVALID_TOPIC")
        try:
            return self._broker.topic_to_publish(name, clock_ns())
        except Refused as refused:
            raise _refusal(refused) from refused

    def _delay_ns(self, request: Request) -> int:
        text = request.query.get("defer")
        if text is None:
            return 0
        delay_ns = int(text) * _NS_PER_MS if _MILLISECONDS.fullmatch(text) else -1
        if not 0 <= delay_ns <= self._broker.max_defer_ns(request.require("topic")):
            raise ApiError(400, "INVALID_DEFER")
        return delay_ns

    def _is_binary(self, request: Request) -> bool:
        value = request.query.get("binary")
        if value is None or value in FALSE:
            return False
        if value not in TRUE:
            self._log.warning("deprecated value '%s' used for /mpub binary param", value)
        return True

    async def _stored_in_slices(self, topic: Topic, slices: Slices | TextSlices, due_ns: int = 0) -> Response:
        """Publish slice by slice. Other tasks run in between, and a drain waits for the last slice."""
        waiting: list[asyncio.Future[None]] = []
        self._broker.under_way += 1
        try:
            while (batch := slices.take()) is not None:
                if batch.count:
                    if topic.deleted:
                        raise ApiError(503, "EXITING")
                    topic.stage_batch(batch, clock_ns(), due_ns=due_ns)
                    waiting.append(self._write_batch.stored(topic))
                if slices.done:
                    break
                await asyncio.sleep(0)
                if any(slice_.done() and slice_.exception() for slice_ in waiting):
                    break
        except ProtocolError as error:
            raise _bad_binary(error) from error
        except MessageTooBig as error:
            raise ApiError(413, "MSG_TOO_BIG") from error
        except Refused as refused:
            raise _refusal(refused) from refused
        finally:
            self._broker.under_way -= 1
        if any(await asyncio.gather(*waiting, return_exceptions=True)):
            raise ApiError(503, "EXITING")
        return text_reply(b"OK")

    async def _stored(self, topic: Topic) -> Response:
        if topic.deleted:
            raise ApiError(503, "EXITING")
        try:
            await self._write_batch.stored(topic)
        except NotStored as error:
            # The original answers EXITING for a full disk as well, and clients know only that word.
            raise ApiError(503, "EXITING") from error
        return text_reply(b"OK")


def _headers_of(request: Request) -> dict[str, str]:
    """The message's headers among the request's headers, the first of each name."""
    prefix = EXTENSION_PREFIX.decode()
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        if name.lower().startswith(prefix):
            found.setdefault(name.lower().removeprefix(prefix), value)
    return found


def _extension(headers: dict[str, str], ext: str | None) -> bytes:
    """The bytes that are stored before the body. Raises BadHeaders."""
    if ext is None:
        return extension(headers)
    stored = checked_extension(ext.encode("utf-8", "surrogateescape"))
    return extension({**split(stored)[0], **headers}) if headers else stored


def _refusal(refused: Refused) -> ApiError:
    """The error for a client whose publish is refused."""
    if isinstance(refused, Draining):
        return ApiError(503, "DRAINING")
    if isinstance(refused, DiskLow):
        return ApiError(503, "DISK_LOW", retry_after_s=_RETRY_AFTER_S)
    return ApiError(429, "TOPIC_FULL", retry_after_s=_RETRY_AFTER_S)


def _bad_binary(error: ProtocolError) -> ApiError:
    if error.code == E_INVALID_JSON_HEADER:
        return ApiError(400, f"{error.code} {error.text.removeprefix('MPUB_EXT ')}")
    return ApiError(413, "BAD_BODY" if error.code == E_BAD_BODY else "BAD_MESSAGE")
