"""The answer to IDENTIFY: the settings of a connection."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Final

from nsqclient.wire.version import NSQ_VERSION

DEFAULT_OUTPUT_BUFFER_SIZE: Final = 16_384
DEFAULT_DEFLATE_LEVEL: Final = 6


@dataclass(frozen=True, slots=True)
class Negotiated:
    """The settings of a connection, in the key order of the original's answer; times in milliseconds.

    The defaults are those of a server that does not negotiate.
    """

    max_rdy_count: int = 2500
    version: str = NSQ_VERSION
    max_msg_timeout: int = 15 * 60 * 1000
    msg_timeout: int = 60_000
    tls_v1: bool = False
    deflate: bool = False
    deflate_level: int = 0
    max_deflate_level: int = 0
    snappy: bool = False
    sample_rate: int = 0
    auth_required: bool = False
    output_buffer_size: int = DEFAULT_OUTPUT_BUFFER_SIZE
    output_buffer_timeout: int = 250
    topology_region: str = ""
    topology_zone: str = ""
    extend_support: bool = False  # messages arrive with headers, and publishes may have some

    def to_json(self) -> bytes:
        """The body of the response frame."""
        settings = asdict(self)
        if not self.extend_support:  # a client that does not know it gets the answer of the original
            del settings["extend_support"]
        return json.dumps(settings, separators=(",", ":")).encode()


def parse_negotiated(answer: bytes) -> Negotiated:
    """Read the answer to IDENTIFY as a client; a plain ``OK`` comes from a server that does not negotiate.

    Raises ValueError.
    """
    if not answer.startswith(b"{"):
        return Negotiated(version="")
    try:
        granted = json.loads(answer)
        settings = {
            option.name: granted[option.name] for option in fields(Negotiated) if option.name in granted
        }
    except (ValueError, RecursionError) as error:
        raise ValueError("it is no JSON object") from error
    for option in fields(Negotiated):
        if option.name in settings and type(settings[option.name]) is not option.type:
            raise ValueError(f"{option.name} is {settings[option.name]!r}")
    return Negotiated(**{"version": "", **settings})
