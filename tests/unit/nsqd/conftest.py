import pytest

from tests.support.stores import Shop


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.new()
    yield shop
    shop.store.close()
