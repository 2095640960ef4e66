"""The body of /mpub as text: one message per line; empty lines are skipped."""

from typing import Final

from nsqd.log.encoder import Batch

# So much text is split in one go: at most 4096 messages.
WINDOW: Final = 8 << 10
# Lines of usual length fill a slice to this size.
_SLICE_BYTES: Final = 128 << 10
_SLICE_COUNT: Final = 2048
_CHECKED_PER_TURN: Final = 8 * WINDOW


class MessageTooBig(ValueError):
    """A line is longer than a message may be."""


class TextSlices:
    """The messages of a text, in slices. All lines are checked before the first message is delivered."""

    __slots__ = ("_at", "_body", "_checked", "_max_msg_size")

    def __init__(self, body: bytes, max_msg_size: int) -> None:
        self._body = body
        self._max_msg_size = max_msg_size
        self._at = 0
        self._checked = len(body) <= max_msg_size

    @property
    def done(self) -> bool:
        """Whether all messages were delivered."""
        return self._checked and self._at >= len(self._body)

    def take(self) -> Batch | None:
        """The next messages to stage, perhaps none; None when there are no more.

        Raises MessageTooBig, but not after messages were delivered.
        """
        if not self._checked:
            self._check()
            return Batch(())
        if self.done:
            return None
        bodies: list[bytes] = []
        begin = self._at
        while self._at < len(self._body):
            bodies += [line for line in self._window(WINDOW).split(b"\n") if line]
            if len(bodies) >= _SLICE_COUNT or self._at - begin >= _SLICE_BYTES:
                break
        return Batch(bodies)

    def _check(self) -> None:
        if max(map(len, self._window(_CHECKED_PER_TURN).split(b"\n"))) > self._max_msg_size:
            raise MessageTooBig
        if self._at >= len(self._body):
            self._at = 0
            self._checked = True

    def _window(self, size: int) -> bytes:
        """The next whole lines, together about *size* bytes."""
        body, begin = self._body, self._at
        end = body.find(b"\n", min(begin + size, len(body)))
        self._at = len(body) if end < 0 else end + 1
        return body[begin : self._at]
