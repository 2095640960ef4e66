from collections.abc import Iterator

import pytest
from helm_python import Chart

from tests.deploy.release import CHART, VALUE_SETS, Release, render, values_of


@pytest.fixture(scope="session")
def chart() -> Iterator[Chart]:
    with Chart.load(CHART) as loaded:
        yield loaded


@pytest.fixture(scope="session", params=VALUE_SETS)
def release(request, chart) -> Release:
    """The chart rendered with each of the value sets in ci/."""
    return render(chart, values_of(request.param))
