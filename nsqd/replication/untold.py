"""The file with the names of deleted topics whose deletion a keeper that was away has not heard of yet.

Without it, a topic that is deleted while a keeper is away would come back from there.
"""

import json
from pathlib import Path
from typing import Final

from nsqclient.wire.names import is_valid_name
from nsqd.log.disk import Disk

FILE_NAME: Final = "deleted-topics.json"
# If there are more, the oldest are forgotten.
MOST_UNTOLD: Final = 10_000


def load(disk: Disk, data_path: Path, identity: bytes) -> dict[str, set[str]]:
    """Names, and addresses of keepers that have not heard. Raises OSError; a damaged file counts as empty."""
    try:
        value = json.loads(disk.read_file(data_path / FILE_NAME))
        if value["identity"] != identity.hex():
            # The data path was copied: the file is that of another identity.
            return {}
        return {
            str(name): {str(address) for address in addresses}
            for name, addresses in value["topics"].items()
            if is_valid_name(name)
        }
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def save(disk: Disk, data_path: Path, identity: bytes, untold: dict[str, set[str]]) -> None:
    """Write the file, durably. Raises OSError."""
    topics = {name: sorted(untold[name]) for name in list(untold)[-MOST_UNTOLD:]}
    content = json.dumps({"identity": identity.hex(), "topics": topics}, separators=(",", ":")).encode()
    disk.replace(data_path / FILE_NAME, content, durable=True)
    disk.sync_folder(data_path)
