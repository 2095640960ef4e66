"""A listener that ran out of descriptors continues by itself when some are free again."""

import asyncio
import errno

from nsqcore.process import accepting
from nsqcore.process.accepting import Acceptor


class Listening:
    """A socket with an empty backlog: accept raises EMFILE *failures* times, then BlockingIOError."""

    def __init__(self, failures):
        self.failures = failures

    def fileno(self):
        return 0

    def accept(self):
        self.failures -= 1
        if self.failures >= 0:
            raise OSError(errno.EMFILE, "Too many open files")
        raise BlockingIOError


class Lines:
    def __init__(self):
        self.said = []
        self.is_over = asyncio.Event()

    def error(self, text, *values):
        self.said.append(text % values)

    def warning(self, text, *_):
        self.said.append(text)
        self.is_over.set()


async def test_end_of_shortage_is_seen_without_new_client(monkeypatch):
    monkeypatch.setattr(accepting, "PAUSE_S", 0)
    loop = asyncio.get_running_loop()
    # No client connects, so the loop never calls the reader.
    monkeypatch.setattr(loop, "add_reader", lambda *_: None, raising=False)
    monkeypatch.setattr(loop, "remove_reader", lambda *_: None, raising=False)
    log = Lines()
    acceptor = Acceptor("TCP", Listening(failures=3), asyncio.Protocol, log)
    acceptor.start()
    acceptor._accept()  # as for the last client that connected
    async with asyncio.timeout(20):
        await log.is_over.wait()
    await acceptor.close()

    assert log.said == [
        "TCP: accept failed, new clients have to wait - Too many open files",
        "%s: accepting again after %.1f s",
    ]
