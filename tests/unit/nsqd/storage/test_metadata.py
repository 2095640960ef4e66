import errno
import json

import pytest

from nsqd.log.disk import Disk
from nsqd.storage import metadata
from nsqd.storage.metadata import BadMetadata, Metadata, TopicMetadata
from tests.support.disks import FaultyDisk


def load(disk, path, warnings=None):
    return metadata.load(disk, path, [].append if warnings is None else warnings.append)


def test_file_has_originals_shape(tmp_path):
    metadata.save(Disk(), tmp_path, [TopicMetadata("t", True, [("c", False)]), TopicMetadata("empty")])

    assert json.loads((tmp_path / "nsqd.dat").read_bytes()) == {
        "topics": [
            {"name": "t", "paused": True, "channels": [{"name": "c", "paused": False}]},
            {"name": "empty", "paused": False, "channels": None},
        ],
        "version": "1.3.0",
    }
    assert (tmp_path / "nsqd.dat").stat().st_mode & 0o777 == 0o600


def test_metadata_without_topics_has_null_list():
    assert metadata.encode([]) == b'{"topics":null,"version":"1.3.0"}'


def test_metadata_survives_saving(tmp_path):
    topics = [TopicMetadata("t", True, [("c", False), ("d", True)])]
    metadata.save(Disk(), tmp_path, topics, "abcd")

    assert load(Disk(), tmp_path) == Metadata(topics, "abcd")


def test_file_of_the_original_names_no_data_path(tmp_path):
    (tmp_path / "nsqd.dat").write_bytes(b'{"topics":[{"name":"t","paused":false}],"version":"1.2.1"}')

    assert load(Disk(), tmp_path) == Metadata([TopicMetadata("t")], "")


def test_data_path_is_named_where_the_original_does_not_look():
    assert metadata.encode([], "abcd") == b'{"topics":null,"version":"1.3.0","data_path":"abcd"}'


def test_log_is_named_where_the_original_does_not_look(tmp_path):
    topics = [TopicMetadata("t", log_id=0xABC)]
    metadata.save(Disk(), tmp_path, topics)

    assert json.loads((tmp_path / "nsqd.dat").read_bytes())["topics"] == [
        {"name": "t", "paused": False, "channels": None, "log": "00000abc"}
    ]
    assert load(Disk(), tmp_path).topics == topics


def test_missing_file_is_fresh_start(tmp_path):
    assert load(Disk(), tmp_path) == Metadata([], "")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"topics":[{}]}', b'{"topics":7}', b'{"topics":[{"name":"t","log":"x"}]}', b"\xff"],
)
def test_file_that_cannot_be_understood_is_named(tmp_path, content):
    (tmp_path / "nsqd.dat").write_bytes(content)

    with pytest.raises(BadMetadata, match=r"failed to parse metadata in .*nsqd.dat"):
        load(Disk(), tmp_path)


def test_unreadable_metadata_beside_topic_folders_counts_as_absent(tmp_path):
    (tmp_path / "nsqd.dat").write_bytes(b'{"topics":[{"na')
    (tmp_path / "t.topic").mkdir()
    warnings = []

    assert load(Disk(), tmp_path, warnings) == Metadata([], "")
    assert len(warnings) == 1
    assert "failed to parse metadata in" in warnings[0]


def test_file_that_cannot_be_read_is_named_and_is_not_an_absent_one(tmp_path):
    metadata.save(Disk(), tmp_path, [TopicMetadata("t")])

    with pytest.raises(BadMetadata, match=r"failed to read metadata from .*nsqd.dat"):
        load(FaultyDisk(read_file=errno.EIO), tmp_path)


def test_file_that_could_not_be_written_leaves_old_one(tmp_path):
    metadata.save(Disk(), tmp_path, [TopicMetadata("old")])

    with pytest.raises(OSError, match="No space"):
        metadata.save(FaultyDisk(replace=errno.ENOSPC), tmp_path, [TopicMetadata("new")])
    assert load(Disk(), tmp_path).topics == [TopicMetadata("old")]
