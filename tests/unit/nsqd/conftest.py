import pytest

from tests.support.stores import Shop


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.new()
    yield shop
    shop.store.close()


@pytest.fixture
def copied_site():
    """Nodes of which the first has messages that others keep; see the module."""
    # Few tests need all of that.
    from tests.support import copied_site as sites

    made = []

    def make(count, **more):
        made.append(sites.published(count, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()
