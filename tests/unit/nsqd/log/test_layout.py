import random
import struct

import pytest
from xxhash import xxh3_64_intdigest

from nsqd.log import layout
from nsqd.log.layout import (
    APPEND_HEADER_BYTES,
    FILE_HEADER_BYTES,
    MESSAGE_HEADERS,
    NOTE,
    FileHeader,
    NewerVersion,
    NotALog,
    append_header,
    decode_append,
    decode_file_header,
    find_append,
    find_starts,
    mended_header,
    only_frame,
)

SALT = 0x1122334455667788
HEADER = FileHeader(first=1000, follows=990, salt=SALT, origin=7, notes=3, ends=2000)
COPY = FILE_HEADER_BYTES // 2


def reseal(copy, **fields):
    """A copy of the file header with other *fields* and a right checksum."""
    names = ("magic", "version", "flags", "size", "first", "follows", "notes", "ends", "salt", "origin")
    layout = struct.Struct("<8sHHIQQQQQQ")
    values = dict(zip(names, layout.unpack(copy[: layout.size]), strict=True)) | fields
    packed = layout.pack(*values.values())
    return packed + struct.pack("<Q", xxh3_64_intdigest(packed))


def flipped(data, bit):
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


# --- the file header


@pytest.mark.parametrize("header", [HEADER, FileHeader(first=0, follows=0, salt=0, origin=0)])
def test_file_header_says_what_was_put_into_it(header):
    assert decode_file_header(header.encode() + b"appends") == header


def test_header_has_size_that_readers_take_for_granted():
    assert len(HEADER.encode()) == FILE_HEADER_BYTES == 144


@pytest.mark.parametrize("place", [0, 1])
def test_file_header_is_read_from_either_copy(place):
    raw = bytearray(HEADER.encode())
    raw[place * COPY : (place + 1) * COPY] = b"x" * COPY

    assert decode_file_header(bytes(raw)) == HEADER


def test_file_header_survives_flipped_bit():
    raw = HEADER.encode()

    assert all(decode_file_header(flipped(raw, bit)) == HEADER for bit in range(len(raw) * 8))


@pytest.mark.parametrize(
    "raw", [b"", b"x" * FILE_HEADER_BYTES, bytes(FILE_HEADER_BYTES), HEADER.encode()[: COPY - 1]]
)
def test_file_without_whole_header_is_no_log(raw):
    with pytest.raises(NotALog):
        decode_file_header(raw)


@pytest.mark.parametrize(
    "fields", [{"version": 3}, {"flags": 0x0001}, {"flags": 0x0080}, {"magic": b"NSQLOG\x03\n"}]
)
def test_file_of_newer_version_is_refused_and_named(fields):
    raw = reseal(HEADER.encode()[:COPY], **fields)

    with pytest.raises(NewerVersion, match="is not known"):
        decode_file_header(raw * 2)


@pytest.mark.parametrize("raw", [b"NSQLOG\x03\n" + b"x" * 300, b"NSQLOG\xff\n"])
def test_header_of_another_shape_is_refused_by_number_in_its_magic(raw):
    with pytest.raises(NewerVersion, match="is not known"):
        decode_file_header(raw)


def test_flag_that_need_not_be_understood_is_passed_over():
    raw = reseal(HEADER.encode()[:COPY], flags=0x0100 | 0x8000)

    assert decode_file_header(raw * 2) == HEADER


# --- appends


def mend_append(data, at, base, salt):
    header = mended_header(data, at, salt)
    return decode_append(header, 0, base + at, salt) if header else None


def an_append(data=b"payload", first=1000, count=3, due_ns=0, flags=0, salt=SALT):
    return append_header(salt, first, count, due_ns, data, flags) + data


def test_append_says_where_its_data_lies_and_what_it_holds():
    raw = b"before" + an_append(due_ns=99)

    append = decode_append(raw, 6, 500, SALT)

    assert (append.first, append.next, append.due_ns, append.is_note) == (1000, 1003, 99, False)
    assert (append.start, append.end) == (506 + APPEND_HEADER_BYTES, 506 + len(an_append()))
    assert append.matches(b"payload", SALT)


def test_note_is_told_from_messages():
    assert decode_append(an_append(flags=NOTE), 0, 0, SALT).is_note


def test_other_data_does_not_match():
    append = decode_append(an_append(), 0, 0, SALT)

    assert not append.matches(b"payloae", SALT)
    assert not append.matches(b"payload ", SALT)
    assert not append.matches(b"payload", SALT + 1)


def test_append_of_another_file_is_none_here():
    assert decode_append(an_append(salt=SALT + 1), 0, 0, SALT) is None


def test_header_that_is_cut_short_is_none():
    raw = an_append()[:APPEND_HEADER_BYTES]

    assert decode_append(raw, 0, 0, SALT) is not None
    assert all(decode_append(raw[:size], 0, 0, SALT) is None for size in range(APPEND_HEADER_BYTES))


def test_damaged_header_is_noticed_and_any_single_bit_of_it_mended():
    raw = an_append(due_ns=5)
    for bit in range(APPEND_HEADER_BYTES * 8):
        damaged = flipped(raw, bit)
        assert decode_append(damaged, 0, 0, SALT) is None
        mended = mend_append(damaged, 0, 0, SALT)
        assert mended is not None
        assert (mended.first, mended.next, mended.due_ns, mended.end) == (1000, 1003, 5, len(raw))
        assert mended.matches(b"payload", SALT)


def test_two_wrong_bytes_are_not_mended_into_something_else():
    raw = bytearray(an_append())
    raw[10] ^= 1
    raw[20] ^= 1

    assert mend_append(bytes(raw), 0, 0, SALT) is None


@pytest.mark.parametrize("raw", [b"", bytes(APPEND_HEADER_BYTES), an_append()[: APPEND_HEADER_BYTES - 1]])
def test_mending_without_header_gives_nothing(raw):
    assert mend_append(raw, 0, 0, SALT) is None


def test_append_with_flag_of_upper_byte_is_read_as_ever():
    assert decode_append(an_append(flags=0x0200), 0, 0, SALT).matches(b"payload", SALT)


def a_longer_append(flags=0, salt=SALT):
    """An append as a later version may write it, with 16 bytes of fields that this version does not know."""
    fields = struct.pack(
        "<4sHHIIQQQ", b"\xb5NSQ", flags, 64, 3, 7, 1000, 5, xxh3_64_intdigest(b"payload", salt)
    )
    fields += b"sixteen bytes..."
    return fields + struct.pack("<Q", xxh3_64_intdigest(fields, salt)) + b"payload"


@pytest.mark.parametrize(
    "raw",
    [*(an_append(flags=flags) for flags in (0x0004, 0x0080, NOTE | 0x0004)), a_longer_append(flags=0x0004)],
    ids=["4", "128", "note", "longer"],
)
def test_append_that_must_be_understood_and_is_not_is_refused(raw):
    with pytest.raises(NewerVersion, match="at 500 is not known"):
        decode_append(raw, 0, 500, SALT)


def test_fields_of_header_that_are_not_known_are_passed_over():
    raw = a_longer_append()

    append = decode_append(raw, 0, 500, SALT)

    assert (append.begin, append.start, append.end) == (500, 564, 571)
    assert (append.first, append.next, append.due_ns) == (1000, 1003, 5)
    assert append.matches(b"payload", SALT)
    assert offsets(find_starts(raw + an_append(first=1003), 500, 1000)) == [500, 571]
    assert find_append(b"x" + raw, 0, 0, SALT, 1000).begin == 1


def offsets(starts):
    return [starts.offset(place) for place in range(len(starts))]


def test_starts_are_found_unless_unclear():
    raw = an_append(first=1000) + an_append(b"note", first=1003, count=0, flags=NOTE) + an_append(first=1003)
    size = len(an_append())
    last = 2 * size - len("payload") + len("note")

    found = find_starts(raw, 500, 1000)

    assert offsets(found) == [500, 500 + size, 500 + last]
    assert [found.place(seq) for seq in (1000, 1002, 1003, 1005)] == [0, 0, 2, 2]
    assert found.end == 500 + len(raw)
    assert find_starts(raw[:-1], 500, 1000) is None
    assert find_starts(raw + b"garbage" * 10, 500, 1000) is None
    no_length = struct.pack("<4sHHIIQQQQ", b"\xb5NSQ", 0, 0, 0, 0, 0, 0, 0, 0)
    assert find_starts(no_length, 500, 1000) is None


def test_longer_header_is_mended_except_its_length():
    raw = a_longer_append()
    for bit in range(64 * 8):
        damaged = flipped(raw, bit)
        assert decode_append(damaged, 0, 0, SALT) is None
        if not 6 * 8 <= bit < 8 * 8:
            assert mend_append(damaged, 0, 0, SALT).matches(b"payload", SALT)


@pytest.mark.parametrize("length", [0, 47, 4097, 65535])
def test_header_of_impossible_length_is_none(length):
    raw = bytearray(an_append() + bytes(5000))
    raw[6:8] = length.to_bytes(2, "little")

    assert decode_append(bytes(raw), 0, 0, SALT) is None


# --- looking for the next header


def test_next_whole_header_is_found_behind_damage():
    raw = b"\xb5NSQ garbage" + an_append(first=1003)

    found = find_append(raw, 0, 0, SALT, 1000)

    assert (found.first, found.end) == (1003, len(raw))


def test_header_at_place_itself_or_of_earlier_messages_is_not_the_next():
    assert find_append(an_append(), 0, 0, SALT, 0) is None
    assert find_append(b"x" + an_append(first=999), 0, 0, SALT, 1000) is None


def test_message_that_carries_bytes_of_append_is_not_taken_for_one():
    inner = an_append(first=5000, salt=SALT + 1)
    raw = b"x" + an_append(data=inner, first=1003)

    assert find_append(raw, 0, 0, SALT, 1000).first == 1003
    assert find_append(raw, 1, 0, SALT, 1000) is None


def test_frame_of_append_that_has_it_alone_is_found_and_no_other():
    whole = append_header(SALT, 1000, 1, 99, b"frame") + b"frame"
    data = b"before" + whole + b"behind"
    end = 6 + len(whole)

    assert only_frame(data, 6, end, 1000, SALT, 0) == b"frame"
    assert only_frame(data, 6, end, 1001, SALT, 0) is None
    assert only_frame(data, 6, end, 1000, SALT + 1, 0) is None
    assert only_frame(data, 6, end - 1, 1000, SALT, 0) is None
    assert only_frame(data, 6, 6, 1000, SALT, 0) is None


def test_frame_of_append_with_wrong_bit_is_refused():
    whole = append_header(SALT, 1000, 1, 99, b"frame") + b"frame"

    found = {only_frame(flipped(whole, bit), 0, len(whole), 1000, SALT, 0) for bit in range(8 * len(whole))}

    assert found <= {None, b"frame"}


@pytest.mark.parametrize("append", [(2, 0), (1, NOTE), (1, MESSAGE_HEADERS)])
def test_frame_of_other_append_is_refused(append):
    count, flags = append
    whole = append_header(SALT, 1000, count, 0, b"frame", flags) + b"frame"

    assert only_frame(whole, 0, len(whole), 1000, SALT, 0) is None


@pytest.mark.parametrize("length", [APPEND_HEADER_BYTES, 64, 128, 129, 512, 4096])
def test_mending_computes_bounded_number_of_checksums(monkeypatch, length):
    noise = random.Random(1).randbytes(4096)
    raw = an_append()[:6] + length.to_bytes(2, "little") + noise
    hashed = []

    def digest(data, salt):
        hashed.append(len(data))
        return xxh3_64_intdigest(data, salt)

    monkeypatch.setattr(layout, "xxh3_64_intdigest", digest)

    assert mended_header(raw, 0, SALT) == b""
    assert sum(hashed) <= 256 * (128 + 48) * 128
    if length > 128:
        assert len(hashed) == 1
