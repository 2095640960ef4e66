"""Replies of one turn that wait until what they answer is durable, or copied."""

from collections.abc import Callable

from nsqclient.wire.errors import ProtocolError
from nsqclient.wire.frames import FRAME_ERROR, encode_frame
from nsqd.engine.topic import Topic
from nsqd.protocol.session import Session


class HeldReplies:
    """The part of a connection's replies that one turn has made. Parts are sent in their order."""

    __slots__ = ("_failed", "_marks", "_out", "closing", "upgrading", "waiting")

    def __init__(self, session: Session, waiting: int) -> None:
        """Takes the replies of *session*, which wait for so many topics."""
        self.waiting = waiting
        self.closing = session.closing
        self.upgrading = bool(session.upgrading)
        self._marks = session.marks
        self._out = session.out
        self._failed: dict[Topic, str] = {}
        session.forget_replies()

    def settle(self, topic: Topic, reason: str) -> None:
        """What was published to *topic* is durable, or it is not for *reason*."""
        self.waiting -= 1
        if reason:
            self._failed[topic] = reason

    def text(self) -> bytes:
        """What is sent. Behind the error of the first publish that failed the connection ends."""
        for mark in self._marks:
            reason = self._failed.get(mark.topic)
            if reason:
                del self._out[mark.reply :]
                error = ProtocolError(f"E_{mark.word}_FAILED", f"{mark.word} failed {reason}")
                self._out.append(encode_frame(FRAME_ERROR, error.payload()))
                self.closing = True
                break
        return b"".join(self._out)


class AfterBoth:
    """Tells once what is to be told after two things have happened, or have failed."""

    __slots__ = ("_left", "_reason", "_tell")

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._left = 2
        self._reason = ""

    def one(self, reason: str) -> None:
        self._left -= 1
        self._reason = self._reason or reason
        if not self._left:
            self._tell(self._reason)
