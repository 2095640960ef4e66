"""Shows the counts of the clients' suites at the end of every run, not only when a test failed."""

import pytest

LINES = pytest.StashKey[list[str]]()


@pytest.fixture
def announce(request):
    """A function that adds a sentence to the summary of the run."""
    return request.config.stash.setdefault(LINES, []).append


def pytest_terminal_summary(terminalreporter, config):
    if lines := config.stash.get(LINES, []):
        terminalreporter.section("suites of public clients")
        for line in lines:
            terminalreporter.write_line(line)
