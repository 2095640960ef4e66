"""``nsqd.dat``: the names of topics and channels, in the original's JSON, so that either nsqd can read it.

The folders of the topics are authoritative; the file follows them. It also names the data path and the logs,
which the original does not do. The data path tells a file that the original has written from one of ours that
is out of date, a log tells a topic from an earlier one of its name.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nsqclient.wire.version import NSQ_VERSION
from nsqd.log.disk import Disk
from nsqd.storage.topic_log import FOLDER_SUFFIX

FILE_NAME: Final = "nsqd.dat"


class BadMetadata(Exception):
    """The file cannot be understood; the text is the reason for the operator."""


@dataclass(slots=True)
class TopicMetadata:
    """A topic and its channels: name and whether it is paused.

    *log_id* tells its log from that of an earlier topic of this name; 0 when the file does not say it.
    """

    name: str
    paused: bool = False
    channels: list[tuple[str, bool]] = field(default_factory=list)
    log_id: int = 0


@dataclass(slots=True)
class Metadata:
    """What the file lists; *identity* names the data path, and is empty in a file of the original."""

    topics: list[TopicMetadata] = field(default_factory=list)
    identity: str = ""


def encode(topics: list[TopicMetadata], identity: str = "") -> bytes:
    """The file's content; empty lists are null, as the original writes them."""
    listed = [
        {
            "name": topic.name,
            "paused": topic.paused,
            "channels": [{"name": name, "paused": paused} for name, paused in topic.channels] or None,
        }
        | ({"log": f"{topic.log_id:08x}"} if topic.log_id else {})
        for topic in topics
    ]
    content: dict[str, Any] = {"topics": listed or None, "version": NSQ_VERSION}
    if identity:
        content["data_path"] = identity
    return json.dumps(content, separators=(",", ":")).encode()


def save(disk: Disk, data_path: Path, topics: list[TopicMetadata], identity: str = "") -> None:
    """Replace the file. Raises OSError."""
    disk.replace(data_path / FILE_NAME, encode(topics, identity), durable=True)
    disk.sync_folder(data_path)


def load(disk: Disk, data_path: Path, warn: Callable[[str], None]) -> Metadata:
    """The topics that the file lists; none when it is absent. Raises BadMetadata; names are not checked here.

    A damaged file counts as absent when there are folders of ours, which say the same; *warn* is called.
    With only the original's files it raises, because nothing else names their channels.
    """
    path = data_path / FILE_NAME
    try:
        content = disk.read_file(path)
    except FileNotFoundError:
        return Metadata()
    except OSError as error:
        raise BadMetadata(f"failed to read metadata from {path} - {error}") from error
    try:
        stored = json.loads(content)
        topics = [_topic(item) for item in stored["topics"] or ()]
        return Metadata(topics, str(stored.get("data_path", "")))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"failed to parse metadata in {path} - {error}"
        if not any(name.endswith(FOLDER_SUFFIX) for name in disk.names(data_path)):
            raise BadMetadata(reason) from error
        warn(f"{reason}; the folders of the topics say what there is")
        return Metadata()


def _topic(item: Any) -> TopicMetadata:
    channels = [(str(channel["name"]), bool(channel.get("paused"))) for channel in item.get("channels") or ()]
    return TopicMetadata(
        str(item["name"]), bool(item.get("paused")), channels, int(str(item.get("log", "0")), 16)
    )
