"""The order of nodes by version and name; PURE."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from nsqcore.cluster.models import NodeInfo

# Python makes no number of thousands of digits.
_MAX_VERSION: Final = 200
_SEMVER = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")

VersionKey = tuple[int, int, int, bool, tuple[tuple[int, int, str], ...]]


def version_key(version: str) -> VersionKey:
    """Return a key that orders semantic versions; an unreadable version counts as 0.0.0."""
    match = _SEMVER.fullmatch(version) if len(version) <= _MAX_VERSION else None
    if match is None:
        return 0, 0, 0, True, ()
    major, minor, patch, pre = match.groups()
    parts = tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in (pre.split(".") if pre else ())
    )
    # A pre-release sorts before its release, hence the flag.
    return int(major), int(minor), int(patch), pre is None, parts


def out_of_date(producers: Sequence[NodeInfo]) -> set[str]:
    """Return the ``tcp_address`` of every node whose version is older than the newest among *producers*."""
    if not producers:
        return set()
    newest = max(version_key(producer.version) for producer in producers)
    return {producer.tcp_address for producer in producers if version_key(producer.version) < newest}


def sort_producers(producers: Iterable[NodeInfo]) -> list[NodeInfo]:
    return sorted(producers, key=lambda producer: (producer.hostname, producer.http_address))
