from collections.abc import Iterator

import pytest
from helm_python import Chart

from tests.deploy.release import CHART, VALUE_SETS, Release, render, values_of


@pytest.fixture(scope="session")
def chart() -> Iterator[Chart]:
    with Chart.load(CHART) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def rendered() -> dict[str, Release]:
    """Value set -> its release: tests run in any order, and each set is rendered once."""
    return {}


@pytest.fixture(params=VALUE_SETS)
def release(request, chart, rendered) -> Release:
    """The chart rendered with each of the value sets in ci/."""
    if request.param not in rendered:
        rendered[request.param] = render(chart, values_of(request.param))
    return rendered[request.param]
