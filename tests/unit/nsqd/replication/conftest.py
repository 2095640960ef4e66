import pytest

from tests.support.copied import DATA, Said, Shelf
from tests.support.simulated_disk import SimulatedDisk
from tests.support.stores import Shop


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def said():
    return Said()


@pytest.fixture
def shop(said):
    shop = Shop(DATA)
    shop.new(SimulatedDisk(DATA)).tap = said
    return shop
