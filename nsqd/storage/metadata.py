"""``nsqd.dat``: the names of topics and channels, in the original's JSON, so that either can read it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nsqcore.version import NSQ_VERSION
from nsqd.storage.disk import Disk

FILE_NAME: Final = "nsqd.dat"


class BadMetadata(Exception):
    """The file cannot be understood; the text is the reason for the operator."""


@dataclass(slots=True)
class TopicMetadata:
    """A topic and its channels: name and whether it is paused."""

    name: str
    paused: bool = False
    channels: list[tuple[str, bool]] = field(default_factory=list)


def encode(topics: list[TopicMetadata]) -> bytes:
    """The file's content; empty lists are null, as the original writes them."""
    listed = [
        {
            "name": topic.name,
            "paused": topic.paused,
            "channels": [{"name": name, "paused": paused} for name, paused in topic.channels] or None,
        }
        for topic in topics
    ]
    return json.dumps({"topics": listed or None, "version": NSQ_VERSION}, separators=(",", ":")).encode()


def save(disk: Disk, data_path: Path, topics: list[TopicMetadata]) -> None:
    """Replace the file. Raises OSError."""
    folder = disk.open_folder(data_path)
    try:
        disk.replace(folder, FILE_NAME, encode(topics))
        disk.sync(folder)
    finally:
        disk.close(folder)


def load(data_path: Path) -> list[TopicMetadata]:
    """What the file lists; nothing when it is absent. Raises BadMetadata; names are not judged here."""
    path = data_path / FILE_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadMetadata(f"failed to read metadata from {path} - {error}") from error
    try:
        return [_topic(item) for item in json.loads(content)["topics"] or ()]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadMetadata(f"failed to parse metadata in {path} - {error}") from error


def _topic(item: Any) -> TopicMetadata:
    channels = [(str(channel["name"]), bool(channel.get("paused"))) for channel in item.get("channels") or ()]
    return TopicMetadata(str(item["name"]), bool(item.get("paused")), channels)
