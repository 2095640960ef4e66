import pytest


@pytest.fixture
def channel(node):
    return node.channel()
