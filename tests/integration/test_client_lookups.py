"""Requests to nsqlookupd: possible answers, possible failures on the way, TLS and the secret."""

import asyncio
import contextlib
import json
import logging
import ssl
import threading

import pytest

from nsqclient import Config, Consumer, Producer
from nsqclient._addresses import AddressBook
from nsqclient._http import HttpError, get
from nsqclient.testing import MemoryNsqd
from nsqclient.wire.address import split_address
from nsqclient.wire.frames import FRAME_ERROR, encode_frame
from tests.support.certificates import Authority
from tests.support.peers import answer_identify, read_published, scripted_peer
from tests.support.waiting import eventually

NODE = {"broadcast_address": "10.0.0.1", "tcp_port": 4150}
LIST = json.dumps({"producers": [NODE]}).encode()


def answering(*answers: bytes, asked: list[bytes] | None = None):
    """A server that answers each connection with the next of *answers*, then hangs up."""
    left = list(answers)

    async def script(reader, writer):
        request = await reader.readuntil(b"\r\n\r\n")
        if asked is not None:
            asked.append(request)
        writer.write(left.pop(0))
        await writer.drain()

    return scripted_peer(script)


def reply(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def silent(reader, _writer):
    await reader.read()


def book_of(*lookupds, topic="", **settings):
    return AddressBook([], lookupds, Config(**settings), lambda: None, topic=topic)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 200\r\ntransfer-encoding: Chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ],
    ids=["length", "until the end", "chunks", "interim"],
)
async def test_body_is_read_however_it_is_framed(answer):
    async with answering(answer) as address:
        got = await get(f"http://{address}/", headers={}, seconds=5)

    assert (got.status, got.body) == (200, b"hello")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "closed before an answer came"),
        (b"\x00\x00\x00\x0f\x00\x00\x00\x01E_BAD_PROTOCOL", "no answer in HTTP; is it a TCP port"),
        (b"x" * 100_000, "no answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", "in the middle of the answer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "in the middle of the answer"),
        (b"HTTP/1.1 20x OK\r\n\r\n", "no answer in HTTP"),
    ],
)
async def test_non_answer_raises_error_with_reason(answer, said):
    async with answering(answer) as address:
        with pytest.raises(HttpError, match=said):
            await get(f"http://{address}/", headers={}, seconds=5)


async def test_answer_that_does_not_come_ends_with_its_time():
    async with scripted_peer(silent) as address:
        with pytest.raises(HttpError, match=r"did not answer in 0.05 s"):
            await get(f"http://{address}/", headers={}, seconds=0.05)


async def test_missing_host_or_port_is_named_in_error():
    async with answering() as address:
        pass
    with pytest.raises(HttpError, match=r"^connect: connection refused$"):
        await get(f"http://{address}/", headers={}, seconds=5)
    with pytest.raises(HttpError, match=r"^no such host: nowhere\.invalid$"):
        await get("http://nowhere.invalid/", headers={}, seconds=5)


@pytest.mark.parametrize("url", ["ftp://a/", "http:///x", "http://me:secret@a/"])
async def test_url_that_cannot_be_asked_is_refused(url):
    with pytest.raises(ValueError, match="not a URL that can be asked"):
        await get(url, headers={}, seconds=5)


async def test_secret_of_two_lines_cannot_add_header():
    with pytest.raises(ValueError, match="Invalid header value"):
        await get("http://127.0.0.1:1/", headers={"Authorization": "Bearer a\r\nX: y"}, seconds=5)


async def test_producer_and_consumer_show_secret_and_their_name():
    asked = []
    async with answering(reply(LIST), reply(LIST), reply(LIST), asked=asked) as address:
        await book_of(address, topic="t", auth_secret="s3cret", user_agent="me/1").query_lookupds()
        await book_of(address, auth_secret="s3cret", user_agent="me/1").query_lookupds()
        await book_of(address, topic="t", auth_secret="s3cret", lookupd_authorization=False).query_lookupds()

    assert [request.partition(b" HTTP")[0] for request in asked] == [
        b"GET /lookup?topic=t",
        b"GET /lookup/producers",
        b"GET /lookup?topic=t",
    ]
    assert [b"Authorization: Bearer s3cret\r\n" in request for request in asked] == [True, True, False]
    assert all(b"User-Agent: me/1\r\n" in request for request in asked[:2])


async def test_producer_asks_nsqlookupd_of_the_original_for_its_nodes():
    asked = []
    async with answering(reply(b"{}", "404 Not Found"), reply(LIST), asked=asked) as address:
        book = book_of(f"http://{address}/nsq/lookup?x=1")
        await book.query_lookupds()

    assert (book.nsqds, book.errors) == (["10.0.0.1:4150"], [])
    assert [request.partition(b" HTTP")[0] for request in asked] == [
        b"GET /nsq/lookup/producers?x=1",
        b"GET /nsq/nodes?x=1",
    ]


async def test_answer_of_one_nsqlookupd_is_used_while_another_fails(caplog):
    async with answering(reply(LIST)) as good, answering(reply(b'{"message":"no"}', "500 Oops")) as bad:
        book = book_of(bad, good)
        await book.query_lookupds()
        await eventually(lambda: book.errors and book.nsqds, "both have answered")

    assert book.nsqds == ["10.0.0.1:4150"]
    assert book.errors == [f"nsqlookupd http://{bad}/lookup: status 500: no"]
    assert "status 500: no" in caplog.text


async def test_redirect_is_named():
    moved = reply(b"", "301 Moved", "Location: https://elsewhere/\r\n")
    async with answering(moved) as address:
        book = book_of(address)
        await book.query_lookupds()

    assert book.errors[0].endswith("status 301, it points to https://elsewhere/")


async def test_nsqlookupd_that_fails_is_named_by_each_publish_and_logged_once(caplog):
    async with answering() as address:
        pass
    async with Producer(lookupd_addresses=[address]) as producer:
        for _ in range(3):
            with pytest.raises(ConnectionError, match="connect: connection refused"):
                await producer.publish("t", b"x")

    assert caplog.text.count("error querying nsqlookupd") == 1


async def test_refused_publishes_go_to_nsqd_that_has_come_back():
    async def drains(reader, writer):
        await answer_identify(reader, writer)
        await read_published(reader)
        writer.write(encode_frame(FRAME_ERROR, b"E_PUB_FAILED PUB failed draining"))
        await reader.read()  # read the messages sent after the refused one

    def names(address):
        host, port = split_address(address)
        return reply(json.dumps({"producers": [{"broadcast_address": host, "tcp_port": port}]}).encode())

    topics = ["a", "b", "c"]  # messages of one topic would be one command
    with MemoryNsqd() as back:
        async with (
            scripted_peer(drains) as leaving,
            answering(names(leaving), *[names(back.address)] * 4) as lookupd,
            Producer(lookupd_addresses=[lookupd]) as producer,
        ):
            await producer.ping()
            answers = [await producer.submit(topic, b"x") for topic in topics]
            await asyncio.gather(*answers)

    assert [back.published(topic) for topic in topics] == [[b"x"]] * 3


class Registry(list):
    """An nsqlookupd that knows these addresses of nsqd, and counts how often it was asked."""

    asked = 0

    def serve(self):
        return scripted_peer(self._answer)

    async def _answer(self, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        pairs = (address.rsplit(":", 1) for address in self)
        nodes = [{"broadcast_address": host, "tcp_port": int(port)} for host, port in pairs]
        writer.write(reply(json.dumps({"producers": nodes}).encode()))
        await writer.drain()
        self.asked += 1


OFTEN = Config(lookupd_poll_interval=0.05)


@pytest.mark.parametrize("host", ["nsqd-0.nsqd..svc", "nsqd/0"])
async def test_impossible_host_name_does_not_block_other_addresses(host, caplog):
    with MemoryNsqd() as nsqd:
        registry = Registry([f"{host}:4150", nsqd.address])
        async with (
            asyncio.timeout(20),
            registry.serve() as lookupd,
            Producer(lookupd_addresses=[lookupd], config=OFTEN) as producer,
        ):
            for _ in range(3):
                await producer.publish("t", b"x")
                registry.asked = 0
                await eventually(lambda: registry.asked > 1, "it is asked again")

        assert nsqd.published("t") == [b"x"] * 3
    assert not [record for record in caplog.records if record.levelno == logging.CRITICAL]


async def test_nsqlookupd_that_was_just_started_ends_no_connection():
    with MemoryNsqd() as nsqd:
        registry = Registry([nsqd.address])
        async with (
            registry.serve() as lookupd,
            Producer(lookupd_addresses=[lookupd], config=OFTEN) as producer,
        ):
            for known in ([nsqd.address], [], [nsqd.address]):
                registry[:] = known
                registry.asked = 0
                while registry.asked < 3:
                    await producer.publish("t", b"x")
                    await asyncio.sleep(0.01)

        assert nsqd.connections_made == 1


@pytest.mark.parametrize("refusing", [False, True], ids=["alone", "next to one that is down"])
async def test_nsqd_that_nsqlookupd_no_longer_names_is_left(refusing):
    async with answering() as address:
        down = [address] if refusing else []
    with MemoryNsqd() as leaving, MemoryNsqd() as other:
        registry = Registry([leaving.address])
        async with (
            registry.serve() as lookupd,
            Producer(lookupd_addresses=[*down, lookupd], config=OFTEN) as producer,
        ):
            await producer.publish("t", b"x")
            registry[:] = [other.address]
            await eventually(lambda: producer.nsqd_addresses == [other.address], "the other is used")


async def test_unreachable_nsqd_of_stopped_nsqlookupd_is_forgotten():
    with MemoryNsqd() as other:
        registry = Registry([other.address])
        async with registry.serve() as lookupd:
            with MemoryNsqd() as leaving:
                async with Registry([leaving.address]).serve() as stopping:
                    producer = Producer(lookupd_addresses=[stopping, lookupd], config=OFTEN)
                    await producer.ping()
                    await eventually(lambda: len(producer.nsqd_addresses) == 2, "both are used")
                await producer.publish("t", b"x")
            await eventually(lambda: producer.nsqd_addresses == [other.address], "the other is used")
            for _ in range(2):
                await producer.publish("t", b"x")
                registry.asked = 0
                await eventually(lambda: registry.asked > 1, "it is asked again")
            await eventually(lambda: leaving.address not in repr(producer), "it is forgotten")
            await producer.close()


async def test_last_answer_of_stopped_nsqlookupd_counts_for_reachable_nsqd():
    gone, there = "10.0.0.1:4150", "10.0.0.2:4150"
    registry = Registry([there])
    async with registry.serve() as lookupd:
        async with Registry([gone, there]).serve() as stopping:
            book = book_of(stopping, lookupd)
            await book.query_lookupds()
            await eventually(lambda: sorted(book.nsqds) == [gone, there], "both have answered")
        registry.clear()
        await book.query_lookupds()
        await eventually(lambda: book.errors, "it is known that one has stopped")
        assert sorted(book.nsqds) == [gone, there]

        book.unreachable(gone)
        assert book.nsqds == [there]

    await book.query_lookupds()
    book.unreachable(there)  # while none answers, it may just be restarted
    assert book.nsqds == [there]


@pytest.mark.parametrize("kind", [Producer, Consumer])
@pytest.mark.parametrize("configured", [True, False])
async def test_hanging_nsqlookupd_delays_no_connection(kind, configured):
    arguments = () if kind is Producer else ("t", "c", lambda _: None)
    with MemoryNsqd() as nsqd:
        async with (
            asyncio.timeout(30),
            scripted_peer(silent) as hanging,
            Registry([nsqd.address]).serve() as lookupd,
            kind(
                *arguments,
                nsqd_addresses=nsqd.address if configured else (),
                lookupd_addresses=[hanging] if configured else [hanging, lookupd],
                config=OFTEN,
            ) as client,
        ):
            if kind is Producer:
                await client.publish("t", b"x", timeout=10)
            for connections in (2, 3):
                await eventually(lambda: client.nsqd_addresses, "it is connected", seconds=10)
                nsqd.drop_connections()
                await eventually(
                    lambda: nsqd.connections_made == connections and client.nsqd_addresses,  # noqa: B023
                    "it is connected again",
                    seconds=10,
                )


async def test_unexpected_error_does_not_end_discovery(monkeypatch, caplog):
    failing = [RuntimeError("what?")] * 10

    async def fails_at_first(*args, **settings):
        if failing:
            raise failing.pop()
        return await get(*args, **settings)

    monkeypatch.setattr("nsqclient._lookups.get", fails_at_first)
    with MemoryNsqd() as nsqd:
        async with (
            asyncio.timeout(30),
            Registry([nsqd.address]).serve() as lookupd,
            Consumer("t", "c", lambda _: None, lookupd_addresses=[lookupd], config=OFTEN) as consumer,
            Producer(lookupd_addresses=[lookupd], config=OFTEN, retry_seconds=20) as producer,
        ):
            await producer.publish("t", b"x")
            await eventually(lambda: nsqd.finished("t", "c") == [b"x"], "it is found and read")
            assert consumer.nsqd_addresses == [nsqd.address]

    assert "RuntimeError: what?" in caplog.text


async def test_last_nsqd_is_forgotten_when_its_connection_has_ended():
    registry = Registry()
    async with registry.serve() as lookupd, Producer(lookupd_addresses=[lookupd], config=OFTEN) as producer:
        with MemoryNsqd() as nsqd:
            registry[:] = [nsqd.address]
            await producer.publish("t", b"x")
            registry.clear()
        with pytest.raises(ConnectionError, match="knows no nsqd"):
            await producer.publish("t", b"x")


@pytest.mark.parametrize("plain", [False, True], ids=["https address", "plain address that wants TLS"])
async def test_producer_and_consumer_find_nsqd_over_tls(cluster, tmp_path, plain):
    authority = Authority(tmp_path)
    flags = [*authority.flags, "--tls-required=true", "--broadcast-address=127.0.0.1"]
    lookupd = cluster.daemon("nsqlookupd", flags, ("tcp", "http", "https")).start()
    nsqd = cluster.nsqd()
    address = lookupd.http_address if plain else f"https://127.0.0.1:{lookupd.ports['https']}"
    config = Config(lookupd_tls=authority.client(), lookupd_poll_interval=0.1)
    bodies = []
    async with Producer(lookupd_addresses=[address], config=config, retry_seconds=20) as producer:
        await producer.publish("t", b"x")
        assert producer.nsqd_addresses == [nsqd.tcp_address]
    handle = lambda message: bodies.append(message.body)  # noqa: E731
    async with Consumer("t", "c", handle, lookupd_addresses=[address], config=config):
        await eventually(lambda: bodies, "it is found and read")

    assert bodies == [b"x"]


async def test_untrusted_certificate_of_nsqlookupd_is_refused_and_logged(tmp_path, caplog):
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.certificate, authority.key)
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=context)
    address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    caplog.set_level(logging.ERROR)
    async with server:
        await book_of(address, topic="t").query_lookupds()

    assert "certificate not accepted: unable to get local issuer certificate" in caplog.text


async def test_nsqd_of_topic_are_chosen_from_in_order_of_nsqlookupd():
    listed = [f"10.0.0.{n}:4150" for n in range(20)]
    async with Registry(listed).serve() as lookupd:
        book = book_of(lookupd, topic="t")
        await book.query_lookupds()

    assert book.nsqds == listed


async def test_lost_nsqd_is_connected_again_while_its_nsqlookupd_is_down():
    with MemoryNsqd() as nsqd:
        async with contextlib.AsyncExitStack() as stack:
            lookupd = await stack.enter_async_context(Registry([nsqd.address]).serve())
            async with Consumer("t", "c", lambda _: None, lookupd_addresses=[lookupd]) as consumer:
                await eventually(lambda: consumer.nsqd_addresses, "it is connected")
                await stack.aclose()
                nsqd.drop_connections()
                await eventually(
                    lambda: nsqd.connections_made == 2 and consumer.nsqd_addresses, "it is connected again"
                )


async def test_late_answer_of_nsqlookupd_is_used_immediately():
    with MemoryNsqd() as named, MemoryNsqd() as found:
        host, port = split_address(found.address)
        body = json.dumps({"producers": [{"broadcast_address": host, "tcp_port": port}]}).encode()

        async def slow(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(1)
            writer.write(reply(body))
            await writer.drain()
            writer.close()

        async with (
            scripted_peer(slow) as lookupd,
            Consumer(
                "t", "c", lambda _: None, nsqd_addresses=[named.address], lookupd_addresses=[lookupd]
            ) as consumer,
        ):
            await eventually(
                lambda: set(consumer.nsqd_addresses) == {named.address, found.address},
                "both are read",
                seconds=10,
            )


@pytest.mark.parametrize(
    "begin",
    [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n"],
)
async def test_answer_that_comes_byte_by_byte_keeps_no_thread(begin):
    """Each byte comes in time, so only the whole request can time out: in its head, and in its body."""

    async def drip(_reader, writer):
        writer.write(begin)
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)

    def waiting():
        return [one for one in threading.enumerate() if one.name.startswith("nsqlookupd")]

    async with scripted_peer(drip) as address:
        with pytest.raises(HttpError, match="did not answer in"):
            await get(f"http://{address}/nodes", headers={}, seconds=0.3)
        await eventually(lambda: not waiting(), "the thread has ended")
