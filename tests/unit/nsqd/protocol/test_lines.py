"""The text of /mpub, split in slices."""

import pytest

from nsqd.protocol.lines import WINDOW, MessageTooBig, TextSlices


def slices(body, max_msg_size=1 << 20):
    text = TextSlices(body, max_msg_size)
    found = []
    while (batch := text.take()) is not None:
        found.append(batch.bodies)
    assert text.done
    return found


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (b"", []),
        (b"\n\n\n", []),
        (b"a", [b"a"]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"\na\n\n\nb\r\n", [b"a", b"b\r"]),
    ],
)
def test_lines_that_are_not_empty_are_messages(body, messages):
    assert [body for piece in slices(body) for body in piece] == messages


@pytest.mark.parametrize("line", [b"", b"x", b"y" * 200, b"z" * (3 * WINDOW)])
def test_long_text_comes_in_slices_and_nothing_is_lost(line):
    lines = [line, b"%d" % len(line)] * (500_000 // (len(line) + 1))
    found = slices(b"\n".join(lines))

    assert [body for piece in found for body in piece] == [body for body in lines if body]
    assert len(found) > 3
    assert max(map(len, found)) <= 4096 + 2048


def test_blank_megabytes_are_passed_over_in_pieces():
    found = slices(b"\n" * 3_000_000 + b"x")

    assert len(found) > 20
    assert [body for piece in found for body in piece] == [b"x"]


@pytest.mark.parametrize("place", [0, 1, 400_000, -1])
def test_too_long_line_is_found_before_first_message(place):
    lines = [b"x"] * 500_000
    lines[place] = b"y" * 101
    text = TextSlices(b"\n".join(lines), 100)
    given = []
    with pytest.raises(MessageTooBig):
        while not text.done:
            batch = text.take()
            given += batch.bodies if batch else []

    assert given == []
