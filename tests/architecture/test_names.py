"""A class name has one meaning in all packages together."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = (
    "client/nsqclient",
    "nsqcore",
    "nsqd",
    "nsqlookupd",
    "nsqadmin",
    "nsqtools",
    "devcluster",
    "load",
    "pipelines/pyspark_nsq",
)

# Names of the same thing in several places: without asyncio, in memory for tests, for another framework,
# or as another process reports it.
THE_SAME = {
    "Channel": {"nsqd/engine/channel.py", "client/nsqclient/testing/queues.py"},
    "Consumer": {
        "client/nsqclient/consumer.py",
        "client/nsqclient/sync/consumer.py",
        "nsqd/engine/channel.py",
    },
    "NsqBroker": {
        "client/nsqclient/integrations/faststream/broker.py",
        "client/nsqclient/integrations/taskiq.py",
    },
    "Producer": {"client/nsqclient/producer.py", "client/nsqclient/sync/producer.py"},
    "Stored": {"nsqd/log/happened.py", "client/nsqclient/testing/queues.py"},
    "Topic": {"nsqd/engine/topic.py", "client/nsqclient/testing/queues.py"},
}


def public_classes():
    """Where each public class is defined."""
    found = defaultdict(set)
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].add(str(path.relative_to(ROOT)))
    return found


def test_no_name_means_two_things():
    twice = {name: places for name, places in public_classes().items() if len(places) > 1}

    assert {name: places for name, places in twice.items() if places != THE_SAME.get(name)} == {}


def test_what_is_listed_as_the_same_is_still_there_twice():
    found = public_classes()

    assert {name for name, places in THE_SAME.items() if found[name] != places} == set()
