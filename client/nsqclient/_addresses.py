"""The nsqd of one producer or consumer: those given by address, and those that nsqlookupd names."""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from nsqclient._config import Config
from nsqclient._tasks import end
from nsqclient.wire.address import split_address

# An nsqlookupd that has not answered in this time may hang; the answers of the others are enough.
PATIENCE_SECONDS: Final = 0.5

# The time for which an nsqd that failed is passed over; it doubles with each failure.
MIN_BACKOFF_SECONDS: Final = 0.1
MAX_BACKOFF_SECONDS: Final = 30.0


class AddressBook:
    """What each nsqlookupd said last; *changed* is called when one of them has answered, or has failed to.

    No nsqd is forgotten because an nsqlookupd does not answer, unless the nsqd cannot be reached either while
    other nsqlookupds answer and do not name it: that nsqlookupd may never come back, and the address may be
    given to another nsqd.
    """

    def __init__(
        self,
        nsqds: Sequence[str],
        lookupds: Sequence[str],
        config: Config,
        changed: Callable[[], None],
        *,
        topic: str = "",
    ) -> None:
        """With *topic* it looks for the nsqd that have it, otherwise for those that take messages."""
        for address in nsqds:
            split_address(address)
        self.configured = list(dict.fromkeys(nsqds))
        self._urls: list[str] = []
        self._config = config
        self._changed = changed
        self._topic = topic
        self._answers: dict[str, list[str]] = {}
        self._errors: dict[str, str] = {}  # of those that did not answer when they were asked last
        self._asking: dict[str, asyncio.Task[bool]] = {}
        for address in lookupds:
            self.add_lookupd(address)

    @property
    def has_lookupds(self) -> bool:
        return bool(self._urls)

    @property
    def known(self) -> list[str]:
        """Every nsqd that was given by address or that an nsqlookupd names."""
        found = (address for url in self._urls for address in self._answers.get(url, ()))
        return list(dict.fromkeys((*self.configured, *found)))

    @property
    def errors(self) -> list[str]:
        """Why some nsqlookupd do not answer."""
        return [self._errors[url] for url in self._urls if url in self._errors]

    def add(self, address: str) -> None:
        """Add an nsqd by its address."""
        split_address(address)
        if address not in self.configured:
            self.configured.append(address)

    def remove(self, address: str) -> None:
        """Remove an nsqd that was given by address; ValueError when it was not given."""
        if address not in self.configured:
            given = ", ".join(self.configured) or "none"
            raise ValueError(f"{address} is none of the nsqd that were named ({given})")
        self.configured.remove(address)

    def add_lookupd(self, address: str) -> None:
        from nsqclient._lookups import lookup_url

        if (url := lookup_url(address)) not in self._urls:
            self._urls.append(url)

    def remove_lookupd(self, address: str) -> None:
        """Stop asking an nsqlookupd, and forget what it said; ValueError when it is not one of them."""
        from nsqclient._lookups import lookup_url

        url = lookup_url(address)
        if url not in self._urls:
            raise ValueError(f"{address} is none of the nsqlookupd: {', '.join(self._urls) or 'none'}")
        self._urls.remove(url)
        self._answers.pop(url, None)
        self._errors.pop(url, None)

    def unreachable(self, address: str) -> None:
        """Forget what those that do not answer said of this nsqd, if others answer: it cannot be reached."""
        if any(url in self._answers and url not in self._errors for url in self._urls):
            for url in self._errors.keys() & self._answers.keys():
                self._answers[url] = [each for each in self._answers[url] if each != address]

    async def query_lookupds(self) -> None:
        """Ask all nsqlookupd; when one has answered, the others have another moment, and may answer later."""
        for url in self._urls:
            if url not in self._asking:
                self._asking[url] = asyncio.create_task(self._query(url), name=f"ask {url}")
        waiting = set(self._asking.values())
        answered = False
        while waiting and not answered:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            answered = any(not task.cancelled() and task.result() for task in done)
        if waiting:
            await asyncio.wait(waiting, timeout=PATIENCE_SECONDS)

    async def close(self) -> None:
        """Stop asking."""
        await end(self._asking.values())

    async def _query(self, url: str) -> bool:
        """Return whether it has answered."""
        from nsqclient._lookups import log_failure, nsqds_of, nsqds_to_publish_to

        try:
            if self._topic:
                found = await nsqds_of(self._topic, url, self._config)
            else:
                found = await nsqds_to_publish_to(url, self._config)
                random.shuffle(found)  # producers that start together must not all begin with the same nsqd
            self._answers[url] = found
            self._errors.pop(url, None)
        except Exception as error:  # noqa: BLE001 - the others are asked whatever it raises
            log_failure(url, error)
            self._errors[url] = f"nsqlookupd {url}: {error}"
        finally:
            del self._asking[url]
        self._changed()
        return url not in self._errors


class Roster:
    """The addresses that a producer may use, in order of preference. Pure: time is an argument.

    An address that failed rests for a while. When all addresses rest, the one whose rest ends first is tried:
    a producer never refuses to try.
    """

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._backoff_until: dict[str, float] = dict.fromkeys(addresses, float("-inf"))
        self._backoff: dict[str, float] = {}  # of addresses that failed since they last succeeded
        self._current: str | None = None

    def __len__(self) -> int:
        return len(self._backoff_until)

    def __contains__(self, address: str) -> bool:
        return address in self._backoff_until

    @property
    def addresses(self) -> list[str]:
        return list(self._backoff_until)

    @property
    def current(self) -> str | None:
        """The address in use; before the first use, the one that will be used."""
        return self._current or next(iter(self._backoff_until), None)

    def update(self, addresses: Iterable[str]) -> None:
        """Replace the addresses; the rests of those that stay are kept."""
        now_there = dict.fromkeys(addresses)
        self._backoff_until = {
            address: self._backoff_until.get(address, float("-inf")) for address in now_there
        }
        self._backoff = {address: rest for address, rest in self._backoff.items() if address in now_there}
        if self._current not in now_there:
            self._current = None

    def pick(self, now: float) -> str | None:
        """The address to use, which becomes the current one; None only when there are none.

        The current one stays until it rests; then the next in order that does not rest is used.
        """
        order = list(self._backoff_until)
        if self._current is not None:
            at = order.index(self._current)
            order = order[at:] + order[:at]
        well = (address for address in order if self._backoff_until[address] <= now)
        chosen = next(well, None)
        if chosen is None and order:
            chosen = min(order, key=self._backoff_until.__getitem__)
        self._current = chosen
        return chosen

    def is_well(self, address: str, now: float) -> bool:
        return self._backoff_until.get(address, float("inf")) <= now

    def failed(self, address: str, now: float) -> None:
        """The nsqd could not be reached, broke off or could not store a message."""
        if address in self._backoff_until and self._backoff_until[address] <= now:
            rest = min(self._backoff.get(address, MIN_BACKOFF_SECONDS / 2) * 2, MAX_BACKOFF_SECONDS)
            self._backoff[address] = rest
            self._backoff_until[address] = now + rest

    def succeeded(self, address: str) -> None:
        """The nsqd has confirmed a message."""
        if self._backoff.pop(address, None) is not None and address in self._backoff_until:
            self._backoff_until[address] = float("-inf")

    def end_backoff(self) -> None:
        """Let each address be tried now; the length of its next rest does not change."""
        self._backoff_until = dict.fromkeys(self._backoff_until, float("-inf"))
