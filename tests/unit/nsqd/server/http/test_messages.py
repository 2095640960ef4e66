"""Reading messages of a topic or channel that is deleted during the read."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from nsqcore.http.api import ApiError
from nsqd.log.disk import Disk
from nsqd.server.http.messages import MessagesApi
from nsqd.server.messages.finding import Finder
from tests.support.engine import Node
from tests.support.http_request import Asked


class Interrupted(Finder):
    """Calls *during_search* during the search for messages."""

    def __init__(self, during_search):
        super().__init__(Disk(), ThreadPoolExecutor(1))
        self.during_search = during_search

    async def pick(self, topic, channel, query):
        picked = await super().pick(topic, channel, query)
        self.during_search()
        return picked


@pytest.fixture
def node():
    node = Node()
    node.channel("c")
    node.publish(b"1", b"2")
    return node


async def look(node, during_search):
    finder = Interrupted(during_search)
    try:
        return await MessagesApi(node.broker, finder).browse(Asked(topic="t", channel="c"))
    finally:
        finder.close()


async def test_messages_are_shown(node):
    assert (await look(node, lambda: None)).status == 200


async def test_topic_deleted_during_read_is_not_found(node):
    with pytest.raises(ApiError, match="TOPIC_NOT_FOUND"):
        await look(node, lambda: node.broker.delete_topic("t"))


async def test_channel_deleted_during_read_is_not_found(node):
    with pytest.raises(ApiError, match="CHANNEL_NOT_FOUND"):
        await look(node, lambda: node.broker.delete_channel(node.topic(), "c"))
