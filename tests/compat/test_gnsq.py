"""gnsq, the gevent client: its own suite against our nsqd and nsqlookupd."""

import itertools

import pytest

from tests.compat.client_suite import Client, deselect, environment, fetch, run, unpack

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(900)]

# python-snappy: its suite tests the compressed streams too.
GNSQ = Client("gnsq", "1.0.2", ("pytest==8.3.5", "pytest-timeout==2.3.1", "python-snappy"))
TESTS = 108

# TLS, deflate and snappy are not there yet: every combination but none of them.
NOT_YET = tuple(
    f"tests/test_nsqd.py::test_socket_upgrades[{tls}-{deflate}-{snappy}]"
    for tls, deflate, snappy in itertools.product((True, False), repeat=3)
    if tls or deflate or snappy
)


def test_the_suite_of_gnsq_passes(tmp_path, announce):
    source = unpack(fetch(GNSQ), tmp_path / "source")
    options = deselect(NOT_YET)

    outcome = run(
        environment(GNSQ),
        source / "tests",
        tmp_path / "run",
        options and [*options, "-p", "gnsq_without_tls"],
        ini="markers = slow: starts real servers",
    )
    announce(f"gnsq {GNSQ.version}: {outcome}, {len(options)} left out")

    outcome.must_be_all_passed(TESTS - len(options))
