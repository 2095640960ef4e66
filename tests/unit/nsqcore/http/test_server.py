import asyncio
import io
import json
import re

import pytest

from nsqcore.http.api import ApiError, empty_reply, json_reply, plain_reply, text_reply
from nsqcore.http.router import Route
from nsqcore.http.server import HttpServer
from nsqcore.process.listen import bind
from nsqcore.process.logs import Log
from tests.support.memory_transport import QUIET_ROUNDS, MemoryTransport, quiet

NSQ = ("X-Nsq-Content-Type", "nsq; version=1.0")
JSON = ("Content-Type", "application/json; charset=utf-8")


class Service:
    """A few handlers behind a real listener, and a client that shows the bytes of the answer."""

    def __init__(self, address, compress=False, unix=False):
        self.lines = io.StringIO()
        self.log = Log("", stream=self.lines)
        self.entered = asyncio.Event()
        self.gate = asyncio.Event()
        routes = [
            Route("GET", "/ping", self.ping, head=True),
            Route("GET", "/data", self.data),
            Route("GET", "/item/:name", self.item),
            Route("POST", "/pub", self.pub, logged=False),
            Route("POST", "/create", self.create),
            Route("GET", "/crash", self.crash),
            Route("GET", "/slow", self.slow),
        ]
        self.server = HttpServer([bind(address, allow_unix=unix)], routes, self.log, compress=compress)

    async def ping(self, _):
        return plain_reply("OK")

    async def data(self, _):
        return json_reply({"text": "<&>" * 200})

    async def item(self, request):
        return json_reply({"name": request.params["name"], "q": request.require("q")})

    async def pub(self, request):
        return text_reply(await request.read(10, "MSG_TOO_BIG"))

    async def create(self, request):
        request.require("topic")
        if request.query["topic"] == "gone":
            raise ApiError(404, "TOPIC_NOT_FOUND")
        return empty_reply()

    async def crash(self, _):
        raise ZeroDivisionError("oops")

    async def slow(self, _):
        self.entered.set()
        await self.gate.wait()
        return plain_reply("done")

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.server.port)

    async def ask(self, head, body=b"", headers=""):
        """Send one request on a new connection; returns status, header pairs and body."""
        reader, writer = await self.connect()
        if body:
            headers += f"Content-Length: {len(body)}\r\n"
        writer.write(f"{head} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n".encode() + body)
        raw = await reader.read()
        writer.close()
        await writer.wait_closed()
        top, _, content = raw.partition(b"\r\n\r\n")
        first, *rest = top.decode().split("\r\n")
        pairs = [tuple(line.split(": ", 1)) for line in rest]
        return int(first.split()[1]), pairs, content

    def logged(self):
        return [line.split(" ", 2)[2] for line in self.lines.getvalue().splitlines()]


@pytest.fixture
async def service():
    service = Service("127.0.0.1:0")
    await service.server.start()
    yield service
    await service.server.close()


@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        ("POST /create", 400, "MISSING_ARG_TOPIC"),
        ("POST /create?topic=%zz", 400, "INVALID_REQUEST"),
        ("POST /create?topic=gone", 404, "TOPIC_NOT_FOUND"),
        ("GET /nope", 404, "NOT_FOUND"),
        ("GET /create", 405, "METHOD_NOT_ALLOWED"),
        ("GET /crash", 500, "INTERNAL_ERROR"),
    ],
)
async def test_error_is_status_and_code_in_json(service, head, status, code):
    answered, headers, body = await service.ask(head)

    assert answered == status
    assert json.loads(body) == {"message": code}
    assert JSON in headers
    assert NSQ in headers


@pytest.mark.parametrize(
    "head", ["GET /ping", "GET /nope", "GET /crash", "POST /create?topic=t", "GET //ping"]
)
async def test_replies_do_not_name_libraries(service, head):
    _, headers, _ = await service.ask(head)

    assert "Server" not in dict(headers)


async def test_longer_body_in_chunks_is_refused_too(service):
    chunks = b"6\r\nabcdef\r\n6\r\nabcdef\r\n0\r\n\r\n"
    reader, writer = await service.connect()
    writer.write(b"POST /pub HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)

    assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    writer.close()
    await writer.wait_closed()


async def test_requests_are_logged_with_status_peer_and_time(service):
    await service.ask("GET /item/x?q=1")

    assert re.fullmatch(
        r"INFO: 200 GET /item/x\?q=1 \(127\.0\.0\.1:\d+\) [\d.]+(µs|ms)", service.logged()[-1]
    )


async def test_crash_is_logged_with_its_traceback(service):
    await service.ask("GET /crash")

    assert "ERROR: panic in HTTP handler - oops\nTraceback" in service.lines.getvalue()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /ping HTTP/1.1\r\nHost: x\r\nX-Long: %b\r\n\r\n" % (b"x" * 100_000),
        b"GET /ping?long=%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"x" * 100_000),
    ],
    ids=["header", "address"],
)
async def test_line_that_is_too_long_is_answered_with_sentence(service, head):
    reader, writer = await service.connect()
    writer.write(head)
    answer, _, body = (await reader.read()).partition(b"\r\n\r\n")

    assert b" 431 " in answer.partition(b"\r\n")[0]
    assert body == b'{"message":"HEADER_TOO_LONG: a header or an address has 65536 bytes at most"}'
    writer.close()
    await writer.wait_closed()


async def half_closed(service, sent):
    """Send these bytes and end the sending side, as ``nc -N`` does; returns the whole answer."""
    reader, writer = await service.connect()
    writer.write(sent)
    writer.write_eof()
    received = await reader.read()
    writer.close()
    await writer.wait_closed()
    return received


SLOW = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_client_that_half_closes_during_answer_is_answered_and_closed(service):
    transport, connection = MemoryTransport(), service.server.factory()
    transport.connect(connection)
    transport.say(SLOW)
    await service.entered.wait()

    assert connection.eof_received()
    assert not transport.is_closing()
    service.gate.set()
    await quiet(transport)
    assert transport.received.endswith(b"\r\n\r\ndone")
    assert transport.is_closing()


@pytest.mark.parametrize("rounds", range(QUIET_ROUNDS))
async def test_half_closed_client_at_any_moment_is_answered_and_closed(service, rounds):
    transport, connection = MemoryTransport(), service.server.factory()
    transport.connect(connection)
    transport.say(PING)
    for _ in range(rounds):
        await asyncio.sleep(0)

    if not connection.eof_received():
        transport.close()
    await quiet(transport)

    assert transport.received.endswith(b"\r\n\r\nOK")
    assert transport.is_closing()


async def test_half_closed_client_gets_all_answers(service):
    service.gate.set()
    body = b"POST /pub HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    received = await half_closed(service, SLOW + body + PING)

    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.endswith(b"OK")


async def test_client_that_half_closes_within_body_is_refused(service, caplog):
    """Its time limit is shorter than BODY_STALL_S, so only an immediate answer passes."""
    async with asyncio.timeout(20):
        received = await half_closed(
            service, b"POST /pub HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc"
        )

    assert caplog.records == []
    assert received.startswith(b"HTTP/1.1 500 ")
    assert received.endswith(b'{"message":"INTERNAL_ERROR"}')


async def test_half_closed_idle_client_is_closed(service):
    reader, writer = await service.connect()
    writer.write(PING)
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(2)
    writer.write_eof()

    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def test_half_closed_client_without_request_is_closed(service):
    assert await half_closed(service, b"") == b""
    assert await half_closed(service, b"GET /pi") == b""


async def test_stop_lets_running_handler_finish():
    service = Service("127.0.0.1:0")
    await service.server.start()
    asking = asyncio.create_task(service.ask("GET /slow"))
    await service.entered.wait()
    closing = asyncio.create_task(service.server.close())
    await asyncio.sleep(0)
    service.gate.set()
    await closing

    assert (await asking)[2] == b"done"


async def test_pages_are_compressed_for_who_accepts_it():
    service = Service("127.0.0.1:0", compress=True)
    await service.server.start()
    _, packed, short = await service.ask("GET /data", headers="Accept-Encoding: gzip, deflate\r\n")
    _, plain, long = await service.ask("GET /data")
    await service.server.close()

    assert ("Content-Encoding", "gzip") in packed
    assert ("Vary", "Accept-Encoding") in packed
    assert ("Vary", "Accept-Encoding") in plain
    assert len(short) < len(long)


async def test_unix_socket_works_alike_and_is_removed(tmp_path):
    path = tmp_path / "nsqd.sock"
    service = Service(str(path), unix=True)
    await service.server.start()
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    raw = await reader.read()
    writer.close()
    await writer.wait_closed()
    await service.server.close()

    assert raw.endswith(b"OK")
    assert " (@) " in service.lines.getvalue()
    assert not path.exists()
