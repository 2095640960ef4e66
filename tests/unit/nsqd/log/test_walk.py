import errno

import pytest

from nsqd.log.disk import Disk
from nsqd.log.layout import APPEND_HEADER_BYTES, append_header
from nsqd.log.walk import FileWindow, Window, walk

SALT = 77


def appends(*datas, first=100):
    """Appends of one message each; returns their bytes and where each begins."""
    content, begins = b"", []
    for seq, data in enumerate(datas, first):
        begins.append(len(content))
        content += append_header(SALT, seq, 1, 0, data) + data
    return content, begins


def places(window, at=0, least=0):
    """(start, end, first message or None) of each place."""
    return [
        (place.start, place.end, None if place.append is None else place.append.first)
        for place in walk(window, at, SALT, least)
    ]


@pytest.fixture
def file_of(tmp_path):
    """Make windows on files with a given content."""
    disk = Disk()
    opened = []

    def make(content):
        path = tmp_path / f"{len(opened)}.log"
        path.write_bytes(content)
        opened.append(disk.open_read(path))
        return FileWindow(disk, opened[-1], str(path))

    yield make
    for fd in opened:
        disk.close(fd)


@pytest.mark.parametrize("damaged", [False, True])
def test_appends_and_damage_are_places_one_behind_the_other(file_of, damaged):
    content, begins = appends(b"a", b"b" * 3_000_000, b"")
    if damaged:
        begin, end = begins[1], begins[1] + APPEND_HEADER_BYTES
        content = content[:begin] + bytes(APPEND_HEADER_BYTES) + content[end:]

    found = places(Window(content, 0))

    assert found == [
        (0, begins[1], 100),
        (begins[1], begins[2], None if damaged else 101),
        (begins[2], len(content), 102),
    ]
    assert places(file_of(content)) == found


def test_header_with_one_wrong_byte_is_mended_and_says_how():
    content, begins = appends(b"a", b"b")
    damaged = bytearray(content)
    damaged[begins[1] + 20] ^= 0x10

    first, second = walk(Window(bytes(damaged), 0), 0, SALT, 0)

    assert (first.mend, second.append.first) == (b"", 101)
    assert second.mend == content[begins[1] : begins[1] + APPEND_HEADER_BYTES]


def test_append_of_earlier_messages_behind_damage_is_skipped():
    content, begins = appends(b"a", b"b", b"c")
    again = content[: begins[1]]
    damaged = content[: begins[2]] + b"x" * 60 + again

    assert places(Window(damaged, 0))[-1] == (begins[2], len(damaged), None)


def test_file_that_gives_less_than_it_has_cannot_be_read(file_of):
    content, _ = appends(b"a")

    class Short(Disk):
        def read(self, fd, size, offset):
            return super().read(fd, size, offset)[:-1]

    window = file_of(content)
    window._disk = Short()

    with pytest.raises(OSError, match="short read") as failure:
        places(window)
    assert failure.value.errno == errno.EIO
