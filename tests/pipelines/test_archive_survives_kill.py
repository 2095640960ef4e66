"""The promise of the archive: its driver may be killed at any time, and every message is stored once."""

import pyarrow.dataset as ds
import pytest

from tests.pipelines.conftest import bounds, depth
from tests.pipelines.spark_jobs import Archive
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

MESSAGES = 200_000
PER_MPUB = 2000
BODY = b"%08d" + b"." * 192


@pytest.fixture
def published(nodes, topic):
    """Publish the messages in MPUBs that go to the two nsqds in turn."""
    for first in range(0, MESSAGES, PER_MPUB):
        nsqd = nodes.nsqds[first // PER_MPUB % 2]
        nsqd.post(f"/mpub?topic={topic}", b"\n".join(BODY % n for n in range(first, first + PER_MPUB)))
    for nsqd in nodes.nsqds:
        nodes.listed(nsqd, topic)


@pytest.fixture
def archive(nodes, topic, tmp_path, published):
    archive = Archive(tmp_path, nodes.lookupd.http_address, topic, "--max-offsets-per-trigger=25000")
    yield archive
    archive.kill()


def test_driver_kill_archives_every_message_once(nodes, topic, archive, spark, capsys):
    process = archive.spawn("--available-now")
    wait_until(lambda: archive.batches() >= 2 or process.poll() is not None, "two batches are stored", 150)
    assert archive.kill(), archive.said()

    # The job was killed in the middle: some messages are stored, and some are left.
    assert 2 <= archive.batches() < MESSAGES // 25_000, archive.said()
    assert sum(depth(nsqd, topic) for nsqd in nodes.nsqds) > 0

    # Readers that know nothing of Spark can read the archive in this state.
    seen = ds.dataset(archive.output, format="parquet", partitioning="hive").count_rows()
    assert 2 * 25_000 <= seen < MESSAGES

    archive.spawn("--available-now")
    code, last = archive.wait(200)

    assert code == 0, archive.said()
    assert [depth(nsqd, topic) for nsqd in nodes.nsqds] == [0, 0]
    for nsqd in nodes.nsqds:
        found = bounds(nsqd, topic)
        assert found["channels"]["archive"]["acknowledged"] == found["end"]
    stored = spark.read.parquet(str(archive.output))
    assert stored.count() == MESSAGES
    assert stored.select("nsqd", "sequence").distinct().count() == MESSAGES
    numbers = stored.selectExpr("cast(substring(cast(body as string), 1, 8) as int) as n")
    assert numbers.selectExpr("count(distinct n)", "min(n)", "max(n)").first() == (MESSAGES, 0, MESSAGES - 1)
    with capsys.disabled():
        print(f"\nnsq-archive after the kill: {last}")
