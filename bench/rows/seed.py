"""Creates many topics in one step: writes the metadata of an original nsqd before a server starts."""

import json
from pathlib import Path

CHANNELS = ("a", "b", "c")


def topic_name(number: int) -> str:
    return f"many_{number:05}"


def seed(data: Path, topics: int) -> None:
    """Write ``nsqd.dat`` with *topics* topics of three channels into an empty folder."""
    listed = [
        {
            "name": topic_name(number),
            "paused": False,
            "channels": [{"name": name, "paused": False} for name in CHANNELS],
        }
        for number in range(topics)
    ]
    (data / "nsqd.dat").write_text(json.dumps({"topics": listed, "version": "1.3.0"}))
