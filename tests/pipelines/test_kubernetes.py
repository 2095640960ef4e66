"""The chart's archive job, run as it is rendered, except for addresses and folders."""

import pytest
from deltalake import DeltaTable
from helm_python import Chart

from pyspark_nsq.jobs import archive
from pyspark_nsq.jobs.run import run_until_end
from pyspark_nsq.jobs.signals import Stop
from tests.deploy.release import CHART, NAME, render
from tests.pipelines.conftest import depth

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.fixture
def arguments(nodes, topic, tmp_path):
    """The arguments with which the container of the rendered CronJob is started."""
    values = {
        "archive": {
            "claimName": "lake",
            "image": {"repository": "nsq-cluster-archive"},
            "topics": [{"name": "mine", "topic": topic, "channel": "parquet", "startingOffsets": "earliest"}],
            "extraArgs": ["--table=delta", "--compact"],
        }
    }
    with Chart.load(CHART) as chart:
        release = render(chart, values)
    spec = release.named("CronJob", f"{NAME}-nsq-archive-mine")["spec"]["jobTemplate"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert container["command"] == ["nsq-archive"]
    found = [one.replace("=/archive/", f"={tmp_path}/") for one in container["args"]]
    rest = [one for one in found if not one.startswith("--lookupd-http-address=")]
    assert len(rest) < len(found)
    return [f"--lookupd-http-address={nodes.lookupd.http_address}", *rest]


def test_job_of_chart_archives_topic_to_table(spark, nodes, topic, tmp_path, arguments):
    for number, nsqd in enumerate(nodes.nsqds):
        nodes.publish(nsqd, topic, *(b"%d-%d" % (number, one) for one in range(5)))
    options = archive.parse(arguments)

    assert run_until_end(archive.start(spark, options), Stop()) == 10
    assert archive.compact(options) == 0
    assert DeltaTable(str(tmp_path / "mine")).to_pyarrow_table().num_rows == 10
    assert [depth(nsqd, topic, "parquet") for nsqd in nodes.nsqds] == [0, 0]
