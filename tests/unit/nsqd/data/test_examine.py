"""A wrong bit anywhere in a segment or its index is named, with the repair if there is one."""

import pytest

from nsqd.data.examine import examine, index_is_usable
from nsqd.log import segment_index
from nsqd.log.disk import Disk
from nsqd.log.layout import APPEND_HEADER_BYTES, FILE_HEADER_BYTES
from tests.support.stores import Shop, flip


@pytest.fixture
def shop(tmp_path):
    """A closed segment: a note, four messages, and its index."""
    shop = Shop(tmp_path)
    shop.new()
    shop.note(b'{"note":"create"}')
    shop.publish(b"one", b"two")
    shop.publish(b"three" * 30, b"four")
    shop.store.appender.seal()
    assert shop.sync() is None
    return shop


def findings(shop):
    (segment,) = shop.store.segments
    return list(examine(Disk(), segment))


def test_whole_segment_has_no_damage(shop):
    assert findings(shop) == []


def test_flipped_bit_in_any_byte_of_segment_is_found(shop):
    path = shop.log(1)
    whole = path.read_bytes()
    for at in range(len(whole)):
        bit = 8 * at + at % 8
        flip(path, bit)
        assert findings(shop), f"bit {bit}"
        flip(path, bit)
    assert path.read_bytes() == whole


def test_header_with_one_wrong_byte_is_mended(shop):
    path = shop.log(1)
    whole = path.read_bytes()
    mended = 0
    for at in range(len(whole)):
        flip(path, 8 * at + 5)
        for finding in findings(shop):
            if finding.mend:
                content = bytearray(path.read_bytes())
                content[finding.offset : finding.offset + len(finding.mend)] = finding.mend
                assert bytes(content) == whole, f"byte {at}"
                mended += 1
        path.write_bytes(whole)
    # Every byte can be mended except those of the messages and the note.
    assert mended == FILE_HEADER_BYTES + 3 * APPEND_HEADER_BYTES


def test_header_that_cannot_be_mended_is_loss(shop):
    path = shop.log(1)
    at = path.read_bytes().index(b"\xb5NSQ", 200)
    for byte in (3, 20, 40):
        flip(path, 8 * (at + byte))
    (finding,) = findings(shop)
    assert finding.offset == at
    assert "cannot be read" in finding.text


def test_damaged_data_says_which_messages(shop):
    path = shop.log(1)
    flip(path, 8 * (path.stat().st_size - 1))
    (finding,) = findings(shop)
    assert finding.text == "2 messages from sequence 1002 on are damaged and lost"


def test_flipped_bit_of_index_is_found_and_missing_index_is_no_damage(shop):
    (segment,) = shop.store.segments
    for at in range(segment.index_path.stat().st_size):
        bit = 8 * at + at % 8
        flip(segment.index_path, bit)
        (finding,) = findings(shop)
        assert finding.path == segment.index_path, f"bit {bit}"
        flip(segment.index_path, bit)
    assert index_is_usable(Disk(), segment)
    segment.index_path.unlink()
    assert not index_is_usable(Disk(), segment)
    assert findings(shop) == []
    segment_index.write(Disk(), segment)
    assert index_is_usable(Disk(), segment)
