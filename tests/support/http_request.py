"""A request for a handler that a test calls itself."""

from typing import Any


class Asked:
    """A request with these arguments and this body."""

    content_length = None

    def __init__(self, body: bytes = b"", **arguments: str) -> None:
        self.query = arguments
        self.headers: dict[str, str] = {}
        self._body = body

    def require(self, name: str) -> str:
        return self.query[name]

    async def read(self, *_limits: Any) -> bytes:
        return self._body
