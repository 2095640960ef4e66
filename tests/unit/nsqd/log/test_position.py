import pytest

from nsqd.log.cursor import BadPosition, LogPosition, PositionKind, parse_position, parse_time
from nsqd.log.encoder import Batch, Encoder
from nsqd.log.ids import SEQUENCE_MASK, MessageIds
from nsqd.log.tail import MessageLog

NOW_NS = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
IDS = MessageIds(5)


@pytest.fixture
def log():
    """Messages 10 to 13, published at 100, 200, 300 and 400 ns."""
    log = MessageLog(None, 10, 100)
    encoder = Encoder(IDS, 10)
    for time_ns in (100, 200, 300, 400):
        log.append(encoder.batch(Batch([b"body"]), time_ns))
    return log


def place(text):
    return parse_position(text, IDS, NOW_NS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", LogPosition(PositionKind.EARLIEST)),
        ("latest", LogPosition(PositionKind.LATEST)),
        ("0", LogPosition(PositionKind.SEQUENCE, 0)),
        ("1700000000000000", LogPosition(PositionKind.SEQUENCE, 1_700_000_000_000_000)),
        (IDS.encode(77).decode(), LogPosition(PositionKind.SEQUENCE, 77)),
        ("id:" + IDS.encode(77).decode(), LogPosition(PositionKind.SEQUENCE, 77)),
        ("2023-11-14T22:13:20Z", LogPosition(PositionKind.TIME, NOW_NS)),
        ("2023-11-14T23:13:20 01:00", LogPosition(PositionKind.TIME, NOW_NS)),
        ("2023-11-14", LogPosition(PositionKind.TIME, NOW_NS - 80_000 * SECOND)),
        ("@1700000000", LogPosition(PositionKind.TIME, NOW_NS)),
        ("@1700000000.25", LogPosition(PositionKind.TIME, NOW_NS + SECOND // 4)),
        ("-10m", LogPosition(PositionKind.TIME, NOW_NS - 600 * SECOND)),
        ("-1d", LogPosition(PositionKind.TIME, NOW_NS - 86_400 * SECOND)),
        ("-1w2d12h", LogPosition(PositionKind.TIME, NOW_NS - (9 * 24 + 12) * 3600 * SECOND)),
    ],
)
def test_place_is_read_in_each_of_its_forms(text, expected):
    assert place(text) == expected


def test_sixteen_decimal_digits_are_sequence_unless_they_are_said_to_be_id():
    digits = "0140000000000123"

    assert place(digits) == LogPosition(PositionKind.SEQUENCE, int(digits))
    assert place(f"id:{digits}").kind is PositionKind.SEQUENCE
    assert place(f"id:{digits}").number != int(digits)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "12x",
        "-",
        "-10",
        "--10m",
        "-d",
        "-1d7",
        "@",
        "2023-13-01",
        "id:12",
        str(SEQUENCE_MASK + 1),
        "1" * 40,
        "20231114T101112",
        "\uff11",
    ],
)
def test_invalid_position_is_refused_with_sentence(text):
    with pytest.raises(BadPosition, match=" "):
        place(text)


def test_id_of_another_node_is_no_place():
    with pytest.raises(BadPosition, match="another node"):
        place(MessageIds(6).encode(77).decode())


def test_time_before_1970_is_beginning_of_time():
    assert parse_time("1901-01-01", NOW_NS) == 0
    assert parse_time("-999999h", NOW_NS) == 0


@pytest.mark.parametrize(
    ("wanted", "onward", "back"),
    [
        (LogPosition(PositionKind.EARLIEST), 10, 10),
        (LogPosition(PositionKind.LATEST), 14, 13),
        (LogPosition(PositionKind.SEQUENCE, 12), 12, 12),
        (LogPosition(PositionKind.SEQUENCE, 99), 99, 99),
        (LogPosition(PositionKind.TIME, 200), 11, 11),
        (LogPosition(PositionKind.TIME, 250), 12, 11),
        (LogPosition(PositionKind.TIME, 0), 10, 9),
        (LogPosition(PositionKind.TIME, 999), 14, 13),
    ],
)
def test_position_is_next_message_forward_and_last_backward(log, wanted, onward, back):
    assert wanted.position(log, 10, 14) == onward
    assert wanted.last(log, 10, 14) == back
