from collections.abc import Iterator

import pytest

from tests.support.processes import Cluster, Daemon
from tests.support.site import Site, build_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster that the tests of one file share; each test uses its own topics."""
    cluster = Cluster(tmp_path_factory.mktemp("site"))
    try:
        yield build_site(cluster)
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def small_admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """An nsqadmin that asks an nsqlookupd without nodes."""
    cluster = Cluster(tmp_path_factory.mktemp("small"))
    try:
        cluster.nsqlookupd()
        yield cluster.nsqadmin()
    finally:
        cluster.close()
