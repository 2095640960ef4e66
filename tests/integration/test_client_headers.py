"""The client's headers against a real nsqd, next to a client without headers."""

from dataclasses import replace

import pytest

from nsqclient import Config, Consumer, Producer, Retry
from nsqclient.wire.errors import ProtocolError
from tests.support.waiting import eventually

PLAIN = Config(max_in_flight=20)
EXTENDED = Config(max_in_flight=20, headers=True)


class Seen(list):
    """A handler that keeps bodies and headers."""

    def __call__(self, message):
        self.append((message.body, dict(message.headers)))


@pytest.fixture
def nsqd(cluster):
    nsqd = cluster.nsqd()
    nsqd.create("t", "c")
    return nsqd


def consumer(nsqd, seen, config, channel="c"):
    return Consumer("t", channel, seen, nsqd_addresses=[nsqd.tcp_address], config=config)


async def test_published_headers_are_consumed(nsqd):
    headers = {"traceparent": "00-ab", "name": "käse", "empty": ""}
    seen = Seen()
    async with Producer(nsqd.tcp_address, config=EXTENDED) as producer:
        await producer.publish("t", b"1", headers=headers)
        await producer.publish("t", b"2")
        await producer.multi_publish("t", [b"3", b"4"], headers={"n": "3"})
        confirmation = await producer.submit("t", b"5", headers={"n": "5"})
        await producer.deferred_publish("t", b"6", 0.001)
        await confirmation
    async with consumer(nsqd, seen, EXTENDED):
        await eventually(lambda: len(seen) == 6, "all are handled")

    assert sorted(seen, key=lambda one: one[0]) == [
        (b"1", headers),
        (b"2", {}),
        (b"3", {"n": "3"}),
        (b"4", {"n": "3"}),
        (b"5", {"n": "5"}),
        (b"6", {}),
    ]


@pytest.mark.parametrize("upgrade", [{}, {"snappy": True}, {"deflate": True}], ids=str)
async def test_plain_consumer_shares_channel(nsqd, upgrade):
    plain, extended = Seen(), Seen()
    config = Config(max_in_flight=20, headers=True, **upgrade)
    async with consumer(nsqd, plain, PLAIN), consumer(nsqd, extended, config):
        async with Producer(nsqd.tcp_address, config=config) as producer:
            for n in range(200):
                await producer.publish("t", b"%03d" % n, headers={"n": str(n)} if n % 2 else None)
        await eventually(lambda: len(plain) + len(extended) == 200, "all are handled")

    assert sorted(body for body, _ in plain + extended) == [b"%03d" % n for n in range(200)]
    assert plain
    assert extended
    assert not any(headers for _, headers in plain)
    for body, headers in extended:
        assert headers == ({"n": str(int(body))} if int(body) % 2 else {})


async def test_headers_that_are_too_long_or_no_text_are_refused_by_client(nsqd):
    async with Producer(nsqd.tcp_address, config=EXTENDED) as producer:
        with pytest.raises(ValueError, match="above 65535"):
            await producer.publish("t", b"1", headers={"a": "x" * 70_000})
        with pytest.raises(TypeError, match="text"):
            await producer.publish("t", b"1", headers={"a": 1})
        # The producer still works.
        await producer.publish("t", b"1", headers={"a": "b"})


@pytest.mark.parametrize("max_msg_size", [0, 1 << 20])
async def test_body_of_largest_size_may_have_headers(nsqd, max_msg_size):
    seen = Seen()
    body, headers = b"x" * (1 << 20), {"a": "y" * 60_000}
    async with Producer(nsqd.tcp_address, config=EXTENDED) as producer:
        await producer.publish("t", body, headers=headers)
        with pytest.raises(ProtocolError, match="E_BAD_MESSAGE"):
            await producer.publish("t", body + b"x", headers=headers)
    async with consumer(nsqd, seen, replace(EXTENDED, max_msg_size=max_msg_size)):
        await eventually(lambda: len(seen) == 1, "it is handled")

    assert seen == [(body, headers)]


async def test_dead_letter_of_client_is_sent_back_to_its_channel(nsqd):
    nsqd.post("/channel/create?topic=t&channel=other")
    nsqd.post("/topic/create?topic=t.c.dead")
    works, seen = [], []

    def handle(message):
        if not works:
            raise ConnectionError("database is down")
        seen.append(message.body)

    def dead_letters():
        return nsqd.get("/stats?format=json&topic=t.c.dead")["topics"][0]["message_count"]

    async with Producer(nsqd.tcp_address) as producer:
        await producer.publish("t", b"order")
    async with Consumer(
        "t",
        "c",
        handle,
        nsqd_addresses=[nsqd.tcp_address],
        retry=Retry(1, backoff=False),
    ) as consumer:
        await eventually(lambda: dead_letters() == 1, "it is a dead letter")
        await eventually(lambda: consumer.stats.finished == 1, "the message is finished")
        works.append(True)
        nsqd.post("/dead_letters/send_back?topic=t.c.dead")
        await eventually(lambda: seen == [b"order"], "it was sent back to its channel")

    [topic] = nsqd.get("/stats?format=json&topic=t")["topics"]
    depths = {channel["channel_name"]: channel["depth"] for channel in topic["channels"]}
    assert depths == {"c": 0, "other": 1}
