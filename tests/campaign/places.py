"""The topics and channels of the random work, including the channel with dead letters and their topic."""

from typing import Final

TOPICS: Final = ("orders", "events")
CHANNELS: Final = ("a", "b")
DIES: Final = ("orders", "b")
DEAD: Final = "orders.b.dead"
# In nanoseconds of the clock.
MILLISECOND: Final = 1_000_000
