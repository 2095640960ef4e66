"""The counts of the clients' suites are shown at the end of every run, not only when something failed."""

import pytest

LINES = pytest.StashKey[list[str]]()


@pytest.fixture
def announce(request):
    """Call with a sentence to have it in the summary of the run."""
    return request.config.stash.setdefault(LINES, []).append


def pytest_terminal_summary(terminalreporter, config):
    if lines := config.stash.get(LINES, []):
        terminalreporter.section("suites of public clients")
        for line in lines:
            terminalreporter.write_line(line)
