import pytest

from nsqadmin.stats.versions import out_of_date, version_key
from tests.support.records import producer


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.2.9", "1.3.0"),
        ("1.3.0-compat", "1.3.0"),
        ("1.3.0-alpha.2", "1.3.0-alpha.10"),
        ("1.3.0-9", "1.3.0-alpha"),
        ("garbage", "0.0.1"),
        ("1.9.0", "1.10.0"),
    ],
)
def test_versions_are_ordered_as_semantic_versions(older, newer):
    assert version_key(older) < version_key(newer)


def test_nodes_below_newest_version_are_out_of_date():
    nodes = [producer(4151, version="1.3.0"), producer(4251, version="1.2.1")]

    assert out_of_date(nodes) == {"127.0.0.1:4250"}
    assert out_of_date([]) == set()


def test_version_of_thousands_of_digits_is_as_old_as_an_unreadable_one():
    assert version_key("9" * 5000 + ".0.0") == version_key("?")
