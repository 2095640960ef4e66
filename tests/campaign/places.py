"""Which channel gives up what was tried too often, and where that goes."""

from typing import Final

DIES: Final = ("orders", "b")
DEAD: Final = "orders.b.dead"
