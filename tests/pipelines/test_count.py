"""The job that counts messages in spans of time."""

import pytest

from pyspark_nsq.jobs.count import parse, start
from pyspark_nsq.jobs.run import run_until_end
from pyspark_nsq.jobs.session import JobError
from pyspark_nsq.jobs.signals import Stop
from tests.pipelines.conftest import depth

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]


def test_counts_are_not_added_to_an_output_of_another_checkpoint(spark, nodes, topic, tmp_path):
    """Spark would skip batches that it mistakes for stored ones, and the source would acknowledge them."""
    (nsqd, _) = nodes.nsqds
    nodes.publish(nsqd, topic, b"a", b"b")

    def count(checkpoint):
        options = parse(
            [
                f"--lookupd-http-address={nodes.lookupd.http_address}",
                f"--topic={topic}",
                "--channel=archive",
                "--available-now",
                f"--output={tmp_path / 'counts'}",
                f"--checkpoint={tmp_path / checkpoint}",
            ]
        )
        return run_until_end(start(spark, options), Stop())

    assert count("first") == 2
    nodes.publish(nsqd, topic, b"later")
    with pytest.raises(JobError, match=r"was written with another checkpoint than .*second; use that one"):
        count("second")
    assert depth(nsqd, topic) == 1
    assert count("first") == 1
    assert depth(nsqd, topic) == 0
