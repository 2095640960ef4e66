"""The kinds of the TLS options --tls-required and --tls-min-version."""

import ssl
from enum import IntEnum
from typing import Any, Final

from nsqcore.options.kinds import Kind, go_text, parse_bool, quoted


class TlsRequired(IntEnum):
    """Where plain connections are refused. The numbers are those that /config shows."""

    NO = 0
    TCP = 1
    TCP_AND_HTTP = 2


DEFAULT_MIN_VERSION: Final = ssl.TLSVersion.TLSv1_2

_VERSIONS: Final = {
    "tls1.0": ssl.TLSVersion.TLSv1,
    "tls1.1": ssl.TLSVersion.TLSv1_1,
    "tls1.2": ssl.TLSVersion.TLSv1_2,
    "tls1.3": ssl.TLSVersion.TLSv1_3,
}


def _required_from_flag(word: str) -> TlsRequired:
    if word.lower() == "tcp-https":
        return TlsRequired.TCP
    return TlsRequired.TCP_AND_HTTP if parse_bool(word) else TlsRequired.NO


def _required_from_toml(value: Any) -> TlsRequired:
    if isinstance(value, bool):
        return TlsRequired.TCP_AND_HTTP if value else TlsRequired.NO
    return _required_from_flag(go_text(value))


def _version_from_flag(word: str) -> ssl.TLSVersion:
    if not word:
        return DEFAULT_MIN_VERSION
    try:
        return _VERSIONS[word.lower()]
    except KeyError:
        raise ValueError(f"unknown tlsVersionOption {quoted(word)}") from None


TLS_REQUIRED: Final = Kind(
    "",
    _required_from_flag,
    _required_from_toml,
    boolean=True,
    fatal_in_file=True,
    show=int,
)
TLS_VERSION: Final = Kind(
    "value",
    _version_from_flag,
    lambda value: _version_from_flag(go_text(value)),
    fatal_in_file=True,
    show=int,
    default_text=lambda value: next(word for word, version in _VERSIONS.items() if version is value),
)
