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
    shop.store.close()


@pytest.fixture
def copied_site():
    """Nodes, the first of which has messages that others keep; see tests/support/copied_site.py."""
    # Imported here, because few tests need it.
    from tests.support import copied_site as sites

    made = []

    def make(count, **more):
        made.append(sites.published(count, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()
