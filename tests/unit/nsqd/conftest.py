import pytest

from tests.support.engine import Node
from tests.support.stores import Shop


@pytest.fixture
def node():
    """A node in memory; a test file that needs another one defines its own."""
    return Node()


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.new()
    yield shop
    shop.store.appender.close()
