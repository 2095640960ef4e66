"""The nsqd addresses of one producer or consumer: configured ones and those that nsqlookupd lists."""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from nsqclient._config import Config
from nsqclient._tasks import end
from nsqclient.wire.address import split_address

# After this time an nsqlookupd may hang. The answers of the others are enough.
PATIENCE_SECONDS: Final = 0.5

# A client skips an nsqd that failed for this time. It doubles with each failure.
MIN_BACKOFF_SECONDS: Final = 0.1
MAX_BACKOFF_SECONDS: Final = 30.0


class AddressBook:
    """The last answer of each nsqlookupd. Each answer and each failure calls *changed*.

    The nsqd of an nsqlookupd that does not answer stay listed. An exception is an nsqd that is unreachable
    while other nsqlookupds answer and do not list it. That nsqlookupd may never come back, and another nsqd
    may get the address.
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
        """With *topic* it finds the nsqd that have the topic, otherwise those that accept publishes."""
        for address in nsqds:
            split_address(address)
        self.configured = list(dict.fromkeys(nsqds))
        self._urls: list[str] = []
        self._config = config
        self._changed = changed
        self._topic = topic
        self._answers: dict[str, list[str]] = {}
        self._errors: dict[str, str] = {}  # of the nsqlookupds that did not answer the last request
        self.roster = Roster(self.configured)
        self._asking: dict[str, asyncio.Task[bool]] = {}
        for address in lookupds:
            self.add_lookupd(address)

    @property
    def has_lookupds(self) -> bool:
        return bool(self._urls)

    @property
    def known(self) -> list[str]:
        """Every nsqd that was given by address or that an nsqlookupd names."""
        listed = (address for url in self._urls for address in self._answers.get(url, ()))
        return list(dict.fromkeys((*self.configured, *listed)))

    @property
    def errors(self) -> list[str]:
        """Why some nsqlookupd do not answer."""
        return [self._errors[url] for url in self._urls if url in self._errors]

    def add(self, address: str) -> None:
        """Add an nsqd by its address."""
        split_address(address)
        if address not in self.configured:
            self.configured.append(address)
        self.roster.update(self.known)

    def remove(self, address: str) -> None:
        """Remove an nsqd that was given by address; ValueError when it was not given."""
        if address not in self.configured:
            given = ", ".join(self.configured) or "none"
            raise ValueError(f"{address} is none of the nsqd that were named ({given})")
        self.configured.remove(address)
        self.roster.update(self.known)

    def add_lookupd(self, address: str) -> None:
        from nsqclient._lookups import lookup_url

        if (url := lookup_url(address)) not in self._urls:
            self._urls.append(url)

    def remove_lookupd(self, address: str) -> None:
        """Remove an nsqlookupd and its answers; ValueError when it is not one of them."""
        from nsqclient._lookups import lookup_url

        url = lookup_url(address)
        if url not in self._urls:
            raise ValueError(f"{address} is none of the nsqlookupd: {', '.join(self._urls) or 'none'}")
        self._urls.remove(url)
        self._answers.pop(url, None)
        self._errors.pop(url, None)

    def unreachable(self, address: str) -> None:
        """Remove an unreachable nsqd from the answers of silent nsqlookupds, if other nsqlookupds answer."""
        if any(url in self._answers and url not in self._errors for url in self._urls):
            for url in self._errors.keys() & self._answers.keys():
                self._answers[url] = [each for each in self._answers[url] if each != address]

    async def query_lookupds(self) -> None:
        """Query all nsqlookupd. After the first answer the others have a short time. Late answers count."""
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
                random.shuffle(found)  # producers that start together must not all start with the same nsqd
            self._answers[url] = found
            self._errors.pop(url, None)
        except Exception as error:  # noqa: BLE001 - an error of one must not stop the queries to the others
            text = f"nsqlookupd {url}: {error}"
            if self._errors.get(url) != text:  # a publish asks several times before it fails
                log_failure(url, error)
            self._errors[url] = text
        finally:
            del self._asking[url]
        self._changed()
        return url not in self._errors


class Roster:
    """The addresses that a client may use, in order of preference. Pure: time is an argument.

    An address that failed rests for some time. When all addresses rest, the producer tries the one whose rest
    ends first.
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
        """Replace the addresses; those that stay retain their rests."""
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
        return self.rests_until(address) <= now

    def rests_until(self, address: str) -> float:
        """The time at which the rest ends; infinite for an address that may not be used."""
        return self._backoff_until.get(address, float("inf"))

    def failed(self, address: str, now: float) -> None:
        """The nsqd was unreachable, closed the connection or could not store a message."""
        if address in self._backoff_until and self._backoff_until[address] <= now:
            if MAX_BACKOFF_SECONDS < now - self._backoff_until[address] < float("inf"):
                self._backoff.pop(address, None)  # it was well for a while
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
