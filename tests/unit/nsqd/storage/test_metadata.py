import json

import pytest

from nsqd.storage import metadata
from nsqd.storage.disk import Disk
from nsqd.storage.metadata import BadMetadata, TopicMetadata


def test_the_file_has_the_originals_shape(tmp_path):
    metadata.save(Disk(), tmp_path, [TopicMetadata("t", True, [("c", False)]), TopicMetadata("empty")])

    assert json.loads((tmp_path / "nsqd.dat").read_bytes()) == {
        "topics": [
            {"name": "t", "paused": True, "channels": [{"name": "c", "paused": False}]},
            {"name": "empty", "paused": False, "channels": None},
        ],
        "version": "1.3.0",
    }
    assert (tmp_path / "nsqd.dat").stat().st_mode & 0o777 == 0o600


def test_without_topics_the_list_is_null():
    assert metadata.encode([]) == b'{"topics":null,"version":"1.3.0"}'


def test_what_was_saved_is_loaded(tmp_path):
    topics = [TopicMetadata("t", True, [("c", False), ("d", True)])]
    metadata.save(Disk(), tmp_path, topics)

    assert metadata.load(tmp_path) == topics


def test_a_missing_file_is_a_fresh_start(tmp_path):
    assert metadata.load(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"topics":[{}]}', b'{"topics":7}', b"\xff"])
def test_a_file_that_cannot_be_understood_is_named(tmp_path, content):
    (tmp_path / "nsqd.dat").write_bytes(content)

    with pytest.raises(BadMetadata, match=r"failed to parse metadata in .*nsqd.dat"):
        metadata.load(tmp_path)
