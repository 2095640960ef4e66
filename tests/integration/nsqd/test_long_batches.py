"""A million messages in one request: all are stored, and other clients are served during the request."""

import http.client
import threading

import pytest

from tests.support.processes import Cluster
from tests.support.wire import batch, mpub

MESSAGES = 400_000


@pytest.fixture(scope="module", params=[(), ("--sync-every=1",)], ids=["default", "strict"])
def nsqd(request, tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("long"))
    yield cluster.nsqd(*request.param)
    cluster.close()


def over_tcp(connect, nsqd, topic):
    wire = connect(nsqd)
    return lambda: wire.ask(mpub(topic, *[b"x"] * MESSAGES))


def over_http(path, body):
    def publisher(_connect, nsqd, topic):
        def publish():
            client = http.client.HTTPConnection("127.0.0.1", nsqd.http_port, timeout=60)
            client.request("POST", path.format(topic), body)
            answer = client.getresponse().read()
            client.close()
            return answer

        return publish

    return publisher


PUBLISHERS = {
    "MPUB": over_tcp,
    "text": over_http("/mpub?topic={}", b"x\n" * MESSAGES),
    "binary": over_http("/mpub?topic={}&binary=true", batch(*[b"x"] * MESSAGES)),
}


@pytest.mark.parametrize("publisher", PUBLISHERS.values(), ids=PUBLISHERS)
def test_long_batch_blocks_no_other_client(nsqd, connect, topic, publisher):
    publish = publisher(connect, nsqd, topic)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(publish()))
    other = connect(nsqd)
    thread.start()
    served = 0
    while thread.is_alive():
        other.publish("other", b"m")
        # Count only rounds in which the batch is being published.
        topics = nsqd.get(f"/stats?format=json&topic={topic}")["topics"]
        served += bool(topics) and 0 < topics[0]["message_count"] < MESSAGES
    thread.join()

    assert answers == [b"OK"]
    assert served
    assert nsqd.get(f"/stats?format=json&topic={topic}")["topics"][0]["message_count"] == MESSAGES
