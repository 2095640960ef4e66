import pytest

from nsqtools.kube.access import KubeApi
from tests.support.fake_kubernetes import fake_kubernetes


class Waiting:
    """A clock that only its own sleeps move."""

    def __init__(self):
        self.now_s = 0.0
        self.pauses = []

    def clock(self):
        return self.now_s

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now_s += seconds


@pytest.fixture
def kubernetes():
    with fake_kubernetes() as cluster:
        yield cluster


@pytest.fixture
def waiting():
    return Waiting()


@pytest.fixture
def api(kubernetes, waiting):
    with kubernetes.client() as client:
        yield KubeApi(client, 60, clock=waiting.clock, sleep=waiting.sleep)
