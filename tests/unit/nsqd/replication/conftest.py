import pytest

from tests.support.simulated_disk import SimulatedDisk
from tests.support.stores import Shop
from tests.unit.nsqd.replication.replica_end import DATA, SentFrames, Shelf
from tests.unit.nsqd.replication.stream_pair import StreamPair


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def sent():
    return SentFrames()


@pytest.fixture
def shop(sent):
    shop = Shop(DATA)
    shop.new(SimulatedDisk(DATA)).segments.tap = sent
    return shop


@pytest.fixture
def pair():
    return StreamPair()
