"""ansq, the asyncio client: its own suite against our nsqd and nsqlookupd."""

import pytest

from tests.compat.client_suite import Client, environment, fetch, run, unpack

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(900)]

# Its HTTP tests ask for the event_loop fixture, which pytest-asyncio 1.0 dropped.
ANSQ = Client("ansq", "0.3.0", ("pytest==8.3.5", "pytest-asyncio==0.23.8", "pytest-timeout==2.3.1"))
TESTS = 107


def test_suite_of_ansq_passes(tmp_path, announce):
    source = unpack(fetch(ANSQ), tmp_path / "source")

    outcome = run(
        environment(ANSQ),
        source / "tests",
        tmp_path / "run",
        ("-p", "ansq_fixtures"),
        ini="asyncio_mode = auto",  # as in ansq's own configuration
    )
    announce(f"ansq {ANSQ.version}: {outcome}")

    outcome.must_be_all_passed(TESTS)
