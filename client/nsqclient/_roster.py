"""Chooses the nsqd that a producer uses next. Pure: time is an argument.

An address that failed rests for a time that doubles with each failure, and is passed over meanwhile. When
all addresses rest, the one whose rest ends first is tried: a producer never refuses to try.
"""

from collections.abc import Iterable
from typing import Final

FIRST_REST_SECONDS: Final = 0.1
LAST_REST_SECONDS: Final = 30.0


class Roster:
    """The addresses in order of preference, each with its rest after failures."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._rests_until: dict[str, float] = dict.fromkeys(addresses, float("-inf"))
        self._rest: dict[str, float] = {}  # of addresses that failed since they last succeeded
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
        """The address in use; before the first use, the one that will be used."""
        return self._current or next(iter(self._rests_until), None)

    def update(self, addresses: Iterable[str]) -> None:
        """Replace the addresses; the rests of those that stay are kept."""
        now_there = dict.fromkeys(addresses)
        self._rests_until = {address: self._rests_until.get(address, float("-inf")) for address in now_there}
        self._rest = {address: rest for address, rest in self._rest.items() if address in now_there}
        if self._current not in now_there:
            self._current = None

    def pick(self, now: float) -> str | None:
        """The address to use, which becomes the current one; None only when there are none.

        The current one stays until it rests; then the next in order that does not rest is used.
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
        """The nsqd could not be reached, broke off or could not store a message."""
        if address in self._rests_until and self._rests_until[address] <= now:
            rest = min(self._rest.get(address, FIRST_REST_SECONDS / 2) * 2, LAST_REST_SECONDS)
            self._rest[address] = rest
            self._rests_until[address] = now + rest

    def succeeded(self, address: str) -> None:
        """The nsqd has confirmed a message."""
        if self._rest.pop(address, None) is not None and address in self._rests_until:
            self._rests_until[address] = float("-inf")

    def end_rests(self) -> None:
        """Let each address be tried now; the length of its next rest does not change."""
        self._rests_until = dict.fromkeys(self._rests_until, float("-inf"))
