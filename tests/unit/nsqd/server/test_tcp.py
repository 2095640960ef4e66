"""What a connection asks of its transport."""

import asyncio

from nsqd.server.tcp import LONG_READ
from tests.support.turns import Bench, Client, Wire


class Heard(Wire):
    """Notes when it is read from."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def pause_reading(self):
        self.calls.append("pause")

    def resume_reading(self):
        self.calls.append("resume")


async def test_who_has_sent_much_that_takes_long_is_read_on_when_others_were(tmp_path):
    client = Client(Bench(tmp_path), Heard())
    # Each is refused with a sentence of its own.
    commands = b"TOUCH 0000000000000000\n" * (4 * LONG_READ // 23)
    client.connection.data_received(b"SUB t c\n" + commands)
    assert client.wire.calls == ["pause"]

    await asyncio.sleep(0)

    assert client.wire.calls == ["pause", "resume"]


async def test_who_has_sent_little_is_read_on_at_once(tmp_path):
    client = Client(Bench(tmp_path), Heard())

    client.connection.data_received(b"SUB t c\n" + b"TOUCH 0000000000000000\n" * 1000)
    await asyncio.sleep(0)

    assert client.wire.calls == []
