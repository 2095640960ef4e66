"""Replies of one turn that wait until the messages they answer for are durable, or copied."""

from nsqclient.wire.errors import ProtocolError
from nsqclient.wire.frames import FRAME_ERROR, encode_frame
from nsqd.engine.topic import Topic
from nsqd.protocol.session import Session


class PendingReplies:
    """The replies that one turn produced on a connection. They are sent in the order of the turns."""

    __slots__ = ("_failed", "_marks", "_out", "closing", "error", "upgrading", "waiting")

    def __init__(self, session: Session, waiting: int) -> None:
        """Take the replies of *session*, which wait for *waiting* calls of `resolve`."""
        self.waiting = waiting
        self.closing = session.closing
        self.upgrading = bool(session.upgrading)
        # Of the first failed publish.
        self.error: ProtocolError | None = None
        self._marks = session.staged
        self._out = session.replies
        self._failed: dict[Topic, str] = {}
        session.forget_replies()

    def resolve(self, topic: Topic, reason: str) -> None:
        """Note that a replica or an fsync has the publishes to *topic*, or why not."""
        self.waiting -= 1
        if reason:
            self._failed.setdefault(topic, reason)

    def text(self) -> bytes:
        """The replies to send.

        The error of the first failed publish ends them, and sets `error` and *closing*.
        """
        for mark in self._marks:
            reason = self._failed.get(mark.topic)
            if reason:
                del self._out[mark.reply :]
                self.error = ProtocolError(f"E_{mark.command}_FAILED", f"{mark.command} failed {reason}")
                self._out.append(encode_frame(FRAME_ERROR, self.error.payload()))
                self.closing = True
                break
        return b"".join(self._out)
