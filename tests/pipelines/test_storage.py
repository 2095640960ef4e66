"""The places of an archive's files, a folder or an object store: a file is complete or does not exist.

The store of these tests has the part of S3 that Arrow needs. NSQ_S3_ENDPOINT=127.0.0.1:5000 names another
store to run them on, such as moto's server.
"""

import http.client
import io
import os
import re
from contextlib import closing

import pyarrow.dataset as ds
import pytest
from pyarrow import fs

from pyspark_nsq.parquet.range_files import RangeFiles
from pyspark_nsq.parquet.storage import ObjectStorage, open_storage
from pyspark_nsq.source.errors import SourceError
from pyspark_nsq.source.planner import LogRange
from tests.pipelines.test_range_files import batch
from tests.support.object_store import object_store

PART = LogRange("n:1", 0, 10)


@pytest.fixture(scope="module")
def store():
    with object_store() as found:
        yield found


@pytest.fixture
def endpoint(store, monkeypatch):
    """The address of a store with the bucket lake."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    address = os.environ.get("NSQ_S3_ENDPOINT", store.address)
    connection = http.client.HTTPConnection(address)
    connection.request("PUT", "/lake")
    assert connection.getresponse().read() is not None
    connection.close()
    return address


@pytest.fixture
def uri(endpoint, topic):
    return f"s3://lake/{topic}-{os.getpid()}?scheme=http&endpoint_override={endpoint}&region=us-east-1"


@pytest.fixture(params=["folder", "file", "s3"])
def output(request, tmp_path):
    """The address of a place of each kind."""
    if request.param == "s3":
        return request.getfixturevalue("uri")
    return str(tmp_path / "out") if request.param == "folder" else f"file://{tmp_path}/out"


def rows(output):
    files, root = fs.FileSystem.from_uri(output)
    return ds.dataset(root, filesystem=files, partitioning="hive").to_table().num_rows


def test_file_is_complete_and_replaced_when_it_is_written_again(output):
    for _ in range(2):
        with closing(open_storage(output)) as place, RangeFiles(place, PART) as files:
            list(files.write(batch(range(10), [0, 1] * 5)))
            list(files.finish())

    assert rows(output) == 10


def test_text_is_read_as_it_was_written(output):
    with closing(open_storage(output)) as place:
        assert place.read("note.json") is None
        place.write("note.json", '{"a": 1}')
        place.write("note.json", '{"a": 2}')
        assert place.read("note.json") == '{"a": 2}'


def test_body_larger_than_one_piece_arrives_whole(uri):
    content = os.urandom(12 << 20)
    with closing(open_storage(uri)) as place:
        unfinished = place.unfinished("large.bin")
        unfinished.write_bytes(content)
        place.finish(unfinished, "large.bin")
    files, root = fs.FileSystem.from_uri(uri)

    with files.open_input_stream(f"{root}/large.bin") as stream:
        assert stream.read() == content


def test_failed_upload_is_named_and_leaves_file_of_another_attempt(store, monkeypatch, endpoint):
    class Failing(io.BytesIO):
        def read(self, size=-1):
            if not (piece := super().read(size)):
                raise OSError("disk")
            return piece

    uri = f"s3://lake/twice?scheme=http&endpoint_override={store.address}&region=us-east-1"
    with closing(ObjectStorage(uri)) as place:
        place.write("x", "complete")
        for refused in ("PUT /lake/twice/x", "PUT /lake/twice/_unfinished/"):
            monkeypatch.setattr(store, "refused", (refused,))
            with pytest.raises(SourceError, match=r"lake/twice/x cannot be written"):
                place.write("x", "again")
        monkeypatch.setattr(store, "refused", ())
        # Only a part of the source can be read.
        with pytest.raises(SourceError, match="x cannot be written: disk"):
            place._upload(Failing(b"half"), "x", 8)

        assert place.read("x") == "complete"

    assert not [name for name in store.objects if re.search("twice/_unfinished/.", name)]


def test_file_that_is_too_large_for_copy_is_uploaded_into_its_place(store, monkeypatch, endpoint):
    uri = f"s3://lake/large?scheme=http&endpoint_override={store.address}&region=us-east-1"
    monkeypatch.setattr(store, "refused", ("PUT /lake/large/_unfinished/",))
    with closing(ObjectStorage(uri)) as place:
        place._upload(io.BytesIO(b"all of it"), "x", 5_000_000_001)

        assert place.read("x") == "all of it"


def test_unfinished_files_of_killed_tasks_are_removed(store, endpoint):
    uri = f"s3://lake/killed?scheme=http&endpoint_override={store.address}&region=us-east-1"
    store.objects["lake/killed/_unfinished/x.parquet.0"] = b"PAR1"
    store.objects["lake/killed/date=1/x.parquet"] = b"PAR1"
    with closing(open_storage(uri)) as place:
        place.tidy()

    assert "lake/killed/_unfinished/x.parquet.0" not in store.objects
    assert "lake/killed/date=1/x.parquet" in store.objects


def test_unknown_place_is_named():
    with pytest.raises(SourceError, match=r"the output nope://x cannot be used: "):
        ObjectStorage("nope://x")
