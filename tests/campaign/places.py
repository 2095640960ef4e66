"""The topics and channels of the random work; which gives up what was tried too often, and to where."""

from typing import Final

TOPICS: Final = ("orders", "events")
CHANNELS: Final = ("a", "b")
DIES: Final = ("orders", "b")
DEAD: Final = "orders.b.dead"
# Of the clock.
MILLISECOND: Final = 1_000_000
