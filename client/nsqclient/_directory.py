"""Which nsqd take messages, according to all nsqlookupd of a producer."""

import asyncio
from collections.abc import Callable, Sequence

from nsqclient._config import Config
from nsqclient._lookups import PATIENCE_SECONDS, Lookups, log_failure
from nsqclient._tasks import Tasks


class Directory:
    """What each nsqlookupd said last; *changed* is called when one of them has answered, or has failed to.

    No nsqd is forgotten because an nsqlookupd does not answer, unless the nsqd cannot be reached either while
    other nsqlookupds answer and do not name it: that nsqlookupd may never come back, and the address may be
    given to another nsqd.
    """

    def __init__(
        self, lookupds: Sequence[str], config: Config, tasks: Tasks, changed: Callable[[], None]
    ) -> None:
        self._lookups = Lookups(lookupds, config)
        self._tasks = tasks
        self._changed = changed
        self._said: dict[str, list[str]] = {}
        self._errors: dict[str, str] = {}  # of those that did not answer when they were asked last
        self._asking: dict[str, asyncio.Task[bool]] = {}

    def __len__(self) -> int:
        return len(self._lookups)

    @property
    def found(self) -> list[str]:
        """Every nsqd that one of them names."""
        return list(
            dict.fromkeys(address for url in self._lookups.urls for address in self._said.get(url, ()))
        )

    @property
    def errors(self) -> list[str]:
        """Why some do not answer."""
        return [self._errors[url] for url in self._lookups.urls if url in self._errors]

    def add(self, address: str) -> None:
        self._lookups.add(address)

    def remove(self, address: str) -> None:
        """Stop asking an nsqlookupd, and forget what it said; ValueError when it is not one of them."""
        url = self._lookups.remove(address)
        self._said.pop(url, None)
        self._errors.pop(url, None)

    async def ask(self) -> None:
        """Ask all of them; when one has answered, the others have another moment, and may answer later."""
        for url in self._lookups.urls:
            if url not in self._asking:
                self._asking[url] = self._tasks.spawn(self._ask(url), f"ask {url}")
        waiting = set(self._asking.values())
        answered = False
        while waiting and not answered:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            answered = any(not task.cancelled() and task.result() for task in done)
        if waiting:
            await asyncio.wait(waiting, timeout=PATIENCE_SECONDS)

    async def _ask(self, url: str) -> bool:
        """Return whether it has answered."""
        try:
            self._said[url] = await self._lookups.publishable(url)
            self._errors.pop(url, None)
        except Exception as error:  # noqa: BLE001 - the others are asked whatever it raises
            log_failure(url, error)
            self._errors[url] = f"nsqlookupd {url}: {error}"
        finally:
            del self._asking[url]
        self._changed()
        return url not in self._errors

    def unreachable(self, address: str) -> None:
        """Forget what those that do not answer said of this nsqd, if others answer: it cannot be reached."""
        if any(url in self._said and url not in self._errors for url in self._lookups.urls):
            for url in self._errors.keys() & self._said.keys():
                self._said[url] = [each for each in self._said[url] if each != address]
