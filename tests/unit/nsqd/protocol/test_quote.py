import pytest

from nsqd.protocol.quote import quote


@pytest.mark.parametrize(
    ("raw", "quoted"),
    [
        (b"plain", '"plain"'),
        (b'a"b\\c', r'"a\"b\\c"'),
        (b"\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        (b"\x00\x01\x7f", r'"\x00\x01\x7f"'),
        (b"\xff\xc3", r'"\xff\xc3"'),
        ("ü€".encode(), '"ü€"'),
        ("\u2028\U000e0001".encode(), r'"\u2028\U000e0001"'),
    ],
)
def test_names_are_quoted_as_the_original_does(raw, quoted):
    assert quote(raw) == quoted
