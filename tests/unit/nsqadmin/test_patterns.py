import pytest

from nsqadmin.patterns import fill, placeholders


def test_values_are_put_in_where_their_names_stand():
    assert fill("https://t/{a}/{b}?x={a}", {"a": "1 2", "b": "ü"}) == "https://t/1%202/%C3%BC?x=1%202"


def test_pattern_with_missing_value_gives_no_address():
    assert fill("https://t/{a}", {}) == ""
    assert fill("https://t/{a}", {"a": ""}) == ""


@pytest.mark.parametrize("pattern", ["https://t/{a", "https://t/{}"])
def test_unclosed_brace_is_reported(pattern):
    with pytest.raises(ValueError, match="brace"):
        placeholders(pattern)
