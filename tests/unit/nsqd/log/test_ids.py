import pytest

from nsqd.log.ids import SEQUENCE_MASK, MessageIds, first_sequence


@pytest.mark.parametrize("node_id", [0, 5, 1023])
@pytest.mark.parametrize("seq", [0, 1, 0xFFFF, 0x10000, SEQUENCE_MASK])
def test_id_gives_its_sequence_back(node_id, seq):
    ids = MessageIds(node_id)

    assert ids.decode(ids.encode(seq)) == seq
    assert ids.encode(seq).startswith(ids.prefix(seq))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"123",
        b"000000000000000G",
        b"+000000000000001",
        b"00000000_0000001",
        b"000000000000000A",
        b" " * 16,
    ],
)
def test_id_is_sixteen_lower_case_digits(text):
    assert MessageIds(5).decode(text) == -1


def test_id_of_another_node_is_not_ours():
    assert MessageIds(5).decode(MessageIds(6).encode(7)) == -1


def test_sequences_start_at_microseconds_since_1970():
    assert first_sequence(1_700_000_000_123_456_789) == 1_700_000_000_123_456
