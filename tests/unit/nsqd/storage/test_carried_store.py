"""The store of a carried log."""

import pytest

from nsqd.log.disk import Disk
from nsqd.log.gaps import Gap
from nsqd.log.happened import Mark
from nsqd.storage.carried_store import HERE, CarriedStore
from tests.support.stores import FIRST, Shop


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.new(segment=200)
    for body in (b"x" * 300, b"y" * 300, b"z"):
        shop.publish(body)
    shop.store.close()
    shop.log(2).unlink()
    return shop


@pytest.fixture
def store(shop):
    store = CarriedStore(Disk(), shop.folder, shop.warnings.append)
    store.recover(Mark())
    return store


def test_nothing_is_written_to_it(store, shop):
    with pytest.raises(OSError, match="not written to"):
        store.append([], [b"note"], FIRST + 3)

    assert shop.names() == ["00000001.log", "00000003.log"]


def test_what_it_lacks_is_a_gap_and_no_warning(store, shop):
    assert isinstance(store.read(FIRST + 1), Gap)
    assert shop.warnings == []


def test_its_own_checkpoints_have_a_folder_of_their_own(store, shop):
    store.make_folder()
    store.make_folder()

    assert shop.names() == ["00000001.log", "00000003.log", HERE]


def test_nothing_begins_again_when_the_folder_is_gone(store, shop):
    for path in shop.folder.iterdir():
        path.unlink()
    shop.folder.rmdir()

    store.begin_again_if_gone()

    assert not shop.folder.exists()
