"""Which nsqd a producer turns to next. Pure: time is an argument.

An address that failed rests for a while that doubles with each failure, and is passed over meanwhile.
When all of them rest, the one whose rest ends first is tried: a producer never refuses to try.
"""

from collections.abc import Iterable
from typing import Final

FIRST_REST_SECONDS: Final = 0.1
LAST_REST_SECONDS: Final = 30.0


class Roster:
    """The addresses in the order of preference, each with how it fared."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._rests_until: dict[str, float] = dict.fromkeys(addresses, float("-inf"))
        self._rest: dict[str, float] = {}  # of those that failed last
        self._current: str | None = None

    def __len__(self) -> int:
        return len(self._rests_until)

    def __contains__(self, address: str) -> bool:
        return address in self._rests_until

    @property
    def addresses(self) -> list[str]:
        return list(self._rests_until)

    @property
    def current(self) -> str | None:
        """The one in use or, before the first, the one that will be."""
        return self._current or next(iter(self._rests_until), None)

    def update(self, addresses: Iterable[str]) -> None:
        """These exist now; what is known of those that stay is kept."""
        now_there = dict.fromkeys(addresses)
        self._rests_until = {address: self._rests_until.get(address, float("-inf")) for address in now_there}
        self._rest = {address: rest for address, rest in self._rest.items() if address in now_there}
        if self._current not in now_there:
            self._current = None

    def pick(self, now: float) -> str | None:
        """The address to use, which becomes the current one; None only when there are none.

        The current one stays as long as it is well; then comes the next in order that is.
        """
        order = list(self._rests_until)
        if self._current is not None:
            at = order.index(self._current)
            order = order[at:] + order[:at]
        well = (address for address in order if self._rests_until[address] <= now)
        chosen = next(well, None)
        if chosen is None and order:
            chosen = min(order, key=self._rests_until.__getitem__)
        self._current = chosen
        return chosen

    def is_well(self, address: str, now: float) -> bool:
        return self._rests_until.get(address, float("inf")) <= now

    def failed(self, address: str, now: float) -> None:
        """It could not be reached, broke off or could not store a message."""
        if address in self._rests_until and self._rests_until[address] <= now:
            rest = min(self._rest.get(address, FIRST_REST_SECONDS / 2) * 2, LAST_REST_SECONDS)
            self._rest[address] = rest
            self._rests_until[address] = now + rest

    def succeeded(self, address: str) -> None:
        """It has confirmed a message."""
        if self._rest.pop(address, None) is not None and address in self._rests_until:
            self._rests_until[address] = float("-inf")

    def end_rests(self) -> None:
        """Each may be tried now; how often it failed is still known."""
        self._rests_until = dict.fromkeys(self._rests_until, float("-inf"))
