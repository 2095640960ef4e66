"""A message is answered once; an answer that cannot be made is none."""

import pytest

from nsqclient import Message, Retry


class Kept:
    """A source that keeps the answers."""

    address, topic, channel, is_closed = "nsqd:4150", "t", "c", False

    def __init__(self, retry: Retry) -> None:
        self.retry = retry
        self.commands: list[bytes] = []

    def answer(self, command, _outcome, _received_at):
        self.commands.append(command)


@pytest.mark.parametrize("delay", [float("inf"), float("-inf"), float("nan"), 1e300, -1])
@pytest.mark.parametrize("by_retry", [False, True], ids=["of the call", "of the retry"])
def test_delay_that_is_none_is_refused_and_message_can_still_be_answered(delay, by_retry):
    source = Kept(Retry(delay=lambda attempts: delay if attempts > 1 else 0))
    message = Message(0, 2, b"0123456789abcdef", b"body", source, 0.0)

    with pytest.raises(ValueError, match="delay"):
        message.requeue(None if by_retry else delay)
    message.requeue(2)

    assert source.commands == [b"REQ 0123456789abcdef 2000\n"]
