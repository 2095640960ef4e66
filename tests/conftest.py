"""Fixtures every test may use, and the report of flaky tests."""

import gc
import os
import signal
import tomllib
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.support import beside, nursery
from tests.support.processes import Cluster

try:
    from hypothesis import HealthCheck, settings
except ModuleNotFoundError:
    pass  # another client's suite runs in its own environment, without hypothesis
else:
    # On a busy machine everything takes longer, which is not a fault of the tested code.
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")

# A shell without job control ignores SIGINT in what it starts in the background, and daemons keep that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests with these marks start daemons with the command that users run, instead of forking them.
_EXECUTED = {"executed", "compat"}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, and freeze the ten thousand tests: they never become garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # Property tests make millions of short-lived objects; looking at them took a tenth of their time.
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    nursery.allowed = nursery.POSSIBLE and not _EXECUTED & {mark.name for mark in item.iter_markers()}


def pytest_unconfigure() -> None:
    nursery.end_all()


def _first_and_last(text: str, most: int = 4000) -> str:
    """The beginning of a log, where a fault is reported once, and its end."""
    return text if len(text) <= 2 * most else f"{text[:most]}\n...\n{text[-most:]}"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report flaky tests, which failed and then passed; ``./test --strict`` fails for those not listed."""
    reporter = session.config.pluginmanager.getplugin("terminalreporter")  # absent in workers of xdist
    outcomes = reporter.stats if reporter else {}
    rerun, *failed = (
        {report.nodeid for report in outcomes.get(key, ())} for key in ("rerun", "failed", "error")
    )
    listed = tomllib.loads(Path(__file__).with_name("flaky.toml").read_text(encoding="utf-8"))
    for test in sorted(rerun.difference(*failed)):
        is_listed = test.partition("[")[0] in listed
        reporter.write_line(f"\nflaky, {'listed' if is_listed else 'not listed'} in tests/flaky.toml: {test}")
        if not is_listed and os.environ.get("FAIL_FLAKY"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Start daemons with ``cluster.nsqlookupd()``, ``cluster.nsqd()``, ``cluster.nsqadmin()``.

    A test fails if a daemon logs a traceback.
    """
    cluster = Cluster(tmp_path / "cluster")
    yield cluster
    # A test may have removed the folder of a daemon.
    logs = {
        daemon.folder.name: daemon.logs()
        for daemon in cluster.daemons
        if daemon.process and daemon.folder.exists()
    }
    cluster.close()
    # Shown by pytest with the traceback, and only when the test failed.
    shown = [f"--- {name}\n{_first_and_last(log)}" for name, log in logs.items()]
    request.node.add_report_section("teardown", "daemons", "\n".join(shown))
    assert not [name for name, log in logs.items() if "Traceback" in log]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With the original's programs in place of ours, keep only the tests that prove a behaviour the same."""
    if beside.OURS:
        return
    named = beside.proofs()
    kept, left = [], []
    for item in items:
        # These tests already run the original and ours side by side.
        name = getattr(item, "originalname", item.name)
        has_both = name in beside.WITH_BOTH or item.path.name == "test_originals.py"
        (left if has_both or name not in named else kept).append(item)
    for item in kept:
        if reason := beside.difference(item.name):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
    config.hook.pytest_deselected(items=left)
    items[:] = kept
