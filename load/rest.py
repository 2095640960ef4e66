"""Reads the messages that the load left in the channels, so that the tally is complete."""

import time
from typing import Final

from load.book import Book
from load.connection import Access
from load.marks import Marker
from load.plan import Plan
from load.profile import ConsumerPlan
from load.reader import ChannelReader
from load.seen import Remaining
from load.tally import Tally
from load.watching import Watch

DRAIN_SECONDS: Final = 120.0
# If the owed count has not fallen for so long, the rest is paused, or deferred for longer.
STILL_SECONDS: Final = 8.0
_ROUND_SECONDS: Final = 0.5


def read_the_rest(
    plan: Plan, access: Access, watch: Watch, tally: Tally, limit: float = DRAIN_SECONDS
) -> Remaining:
    """Consume until nothing is owed or nothing arrives, add it to *tally*, and return what is still owed."""
    book = Book("the rest")
    began = moved = time.monotonic()
    marker = Marker(plan.run_bytes)
    readers: dict[str, ChannelReader] = {}
    owed = watch.owed()
    least = owed.messages
    try:
        # An nsqd that does not answer may still owe messages, so it is asked again.
        while (owed.messages or owed.silent) and time.monotonic() - began < limit:
            for key in owed.by_channel:
                topic, _, channel = key.partition(" ")
                if channel and key not in readers:
                    consumer = ConsumerPlan(ready=500)
                    readers[key] = ChannelReader(
                        plan.lookupds, [(topic, channel)], marker, book, access, consumer
                    )
            until = time.monotonic() + _ROUND_SECONDS
            while time.monotonic() < until:
                for reader in readers.values():
                    reader.turn(_ROUND_SECONDS / 10 / max(1, len(readers)))
                if not readers:
                    time.sleep(_ROUND_SECONDS / 2)
            owed = watch.owed()
            if owed.messages < least:
                least, moved = owed.messages, time.monotonic()
            if time.monotonic() - moved > STILL_SECONDS:
                break
    finally:
        for reader in readers.values():
            reader.close()
    tally.add(book.delta(last=True))
    return watch.owed() if readers else owed
