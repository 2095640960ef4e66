"""Turns publications into the commands that publish them. Pure."""

from collections.abc import Sequence
from typing import TypeAlias

from nsqclient._errors import UnsupportedError
from nsqclient._middleware import Publication
from nsqclient._requests import Confirmation, Publish
from nsqclient.wire import commands
from nsqclient.wire.durations import seconds_of

Body: TypeAlias = bytes | bytearray | memoryview


def body_bytes(body: object) -> bytes:
    """A body as immutable bytes; raises TypeError for other types."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    if isinstance(body, str):
        raise TypeError("a body is bytes, not text: encode it, as in text.encode()")
    raise TypeError(f"a body is bytes, not {type(body).__name__}")


def all_bytes(bodies: Sequence[Body]) -> list[bytes]:
    if isinstance(bodies, bytes | bytearray | memoryview | str):
        raise TypeError("several bodies are a list of bytes")
    return [body_bytes(body) for body in bodies]


def publish_of(publication: Publication, answer: Confirmation, *, with_headers: bool) -> Publish:
    """The command for a publication; UnsupportedError when it has headers that cannot be sent."""
    topic, bodies, headers = publication.topic, publication.bodies, publication.headers
    if headers and not with_headers:
        raise UnsupportedError("headers are published with Config(headers=True) only")
    if headers and publication.delay:
        raise UnsupportedError("a deferred message cannot have headers")
    if publication.delay:
        delay = seconds_of(publication.delay)
        if delay < 0:
            raise ValueError(f"delay {delay:g} s is negative")
        delay_ms = round(delay * 1000)
        return Publish(commands.dpub(topic, bodies[0], delay_ms), [answer])
    if publication.together:
        command = commands.mpub_ext(topic, bodies, headers) if headers else commands.mpub(topic, bodies)
        return Publish(command, [answer], count=len(bodies), has_headers=bool(headers))
    if headers:
        return Publish(commands.pub_ext(topic, bodies[0], headers), [answer], has_headers=True)
    return Publish(commands.pub(topic, bodies[0]), [answer])
