"""gnsq, the gevent client: its own suite against our nsqd and nsqlookupd."""

import pytest

from tests.compat.client_suite import Client, environment, fetch, run, unpack

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(900)]

# python-snappy, because the suite also tests compressed streams.
GNSQ = Client("gnsq", "1.0.2", ("pytest==8.3.5", "pytest-timeout==2.3.1", "python-snappy"))
TESTS = 108


@pytest.mark.parametrize("replicated", [False, True], ids=["single", "replicated"])
def test_suite_of_gnsq_passes(tmp_path, announce, replicated):
    source = unpack(fetch(GNSQ), tmp_path / "source")

    outcome = run(
        environment(GNSQ),
        source / "tests",
        tmp_path / "run",
        (),
        ini="markers = slow: starts real servers",
        replicated=replicated,
    )
    announce(f"gnsq {GNSQ.version}{', each nsqd with a replica' if replicated else ''}: {outcome}")
    if replicated:
        # The replica really has copies.
        assert list((tmp_path / "run/bin/replica/replicas").iterdir())

    outcome.must_be_all_passed(TESTS)
