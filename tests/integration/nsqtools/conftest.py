"""One nsqd for the tests of a file: a start takes longer than most of them."""

from collections.abc import Iterator

import pytest

from tests.support.processes import Cluster, Daemon


@pytest.fixture(scope="module")
def nsqd_of_the_file(tmp_path_factory) -> Iterator[Daemon]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster.nsqd()
    cluster.close()


@pytest.fixture
def nsqd(nsqd_of_the_file, request) -> Iterator[Daemon]:
    """A running nsqd without topics; a test may kill it."""
    nsqd = nsqd_of_the_file
    if not nsqd.is_running():
        nsqd.start()
    for topic in nsqd.get("/stats?format=json")["topics"]:
        nsqd.post(f"/topic/delete?topic={topic['topic_name']}")
    yield nsqd
    request.node.add_report_section("teardown", "nsqd", nsqd.logs()[-4000:])
