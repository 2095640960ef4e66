"""The values that a field of a frame may have, and those that are refused."""

import pytest

from nsqd.replication.fields import BadFrame
from nsqd.replication.frames import CopiedTopic, Had, Hello, Remove, is_copied_name
from nsqd.replication.framing import encode
from tests.unit.nsqd.replication.test_framing import IDENTITY, framed, read


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "00000001.log/x",
        "",
        "nsqd.dat",
        "00000001.index",
        "x.log",
        "00000001.log.tmp",
        "1.log",
    ],
)
def test_no_other_file_than_those_of_a_copy_can_be_named(name):
    assert not is_copied_name(name)
    with pytest.raises(BadFrame, match="no part of a copy"):
        read(framed(Remove.KIND, bytes(4) + bytes([len(name)]) + name.encode()))


@pytest.mark.parametrize("name", ["a/b", "a b", "x" * 65, "orders#ephemeral", ""])
def test_a_topic_has_a_valid_name_and_a_disk(name):
    with pytest.raises(BadFrame, match="the name of a topic is not valid"):
        read(encode(CopiedTopic(1, name)))


@pytest.mark.parametrize("ranges", [((5, 5),), ((5, 4),), ((1, 5), (4, 9)), ((7, 9), (1, 2))])
def test_ranges_are_in_order(ranges):
    with pytest.raises(BadFrame, match="not in order"):
        read(encode(Had(1, ranges)))


def test_a_count_is_believed_up_to_what_a_frame_may_hold():
    with pytest.raises(BadFrame, match="are more than the"):
        read(framed(Had.KIND, bytes(4) + b"\xff\xff\xff\xff"))


def test_a_secret_that_is_too_long_is_not_sent():
    with pytest.raises(BadFrame, match="longer than"):
        encode(Hello(IDENTITY, 1, 1, "x", b"s" * 3000))
