"""Which of Spark's own classes writes the notes of a query; tested without a JVM."""

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError

from pyspark_nsq.jobs.checkpoints import SETTING, note_without_programs

CLASS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


class Settings(dict):
    """The settings of a session."""

    def set(self, key, value):
        self[key] = value


class Place:
    """A Hadoop path: without a scheme it is on the cluster's default file system."""

    default = "file"

    def __init__(self, path):
        self.scheme = path.partition("://")[0] if "://" in path else self.default

    def getFileSystem(self, _settings):  # noqa: N802 - Hadoop's name
        return SimpleNamespace(getUri=lambda: SimpleNamespace(getScheme=lambda: self.scheme))


def session(*, default="file", known=(CLASS,), **settings):
    """A session of a Spark that has only the classes *known*."""

    def for_name(name):
        if name not in known:
            raise Py4JJavaError(
                "there is no such class", SimpleNamespace(_target_id="o1", _gateway_client=None)
            )

    place = type("Path", (Place,), {"default": default})
    jvm = SimpleNamespace(
        java=SimpleNamespace(lang=SimpleNamespace(Class=SimpleNamespace(forName=for_name))),
        org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=SimpleNamespace(Path=place)))),
    )
    context = SimpleNamespace(_jvm=jvm, _jsc=SimpleNamespace(hadoopConfiguration=dict))
    return SimpleNamespace(sparkContext=context, conf=Settings(settings))


def chosen(spark, *folders):
    note_without_programs(spark, *folders)
    return spark.conf.get(SETTING)


def test_notes_on_a_disk_are_written_without_other_programs():
    assert chosen(session(), "/archive/checkpoint", "file:///archive/out") == CLASS


@pytest.mark.parametrize(
    "folders", [("hdfs://lake/checkpoint",), ("/archive/checkpoint", "s3a://lake/orders")]
)
def test_elsewhere_spark_chooses(folders):
    assert chosen(session(), *folders) is None


def test_a_path_is_where_the_cluster_keeps_files():
    assert chosen(session(default="hdfs"), "/archive/checkpoint") is None


def test_what_the_user_has_chosen_stays():
    assert chosen(session(**{SETTING: "mine"}), "/archive/checkpoint") == "mine"


def test_a_spark_that_has_it_elsewhere_goes_its_usual_way():
    assert chosen(session(known=()), "/archive/checkpoint") is None
