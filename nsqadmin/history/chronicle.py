"""Writes the history: the figures of each round, and the events that charts mark."""

from collections.abc import Awaitable, Callable
from typing import Any

from nsqadmin.collecting.views import Round
from nsqadmin.history.recorder import CHANGE, OVER, STARTED, Recorder, event_of, node
from nsqadmin.history.ring import Name


class Chronicle:
    """Follows the cluster and the people who change it."""

    def __init__(self, recorder: Recorder, in_thread: Callable[[Callable[[], None]], Awaitable[Any]]) -> None:
        self._recorder = recorder
        self._in_thread = in_thread
        # The start time that each node reports.
        self._started: dict[str, int] = {}

    async def follow(self, this: Round) -> None:
        events = [(*event_of(one), one.since_s) for one in this.came]
        events += [(f"{OVER}{mark}", text, name, 0.0) for mark, text, name in map(event_of, this.went)]
        for view in this.nodes:
            if view.look is None:
                continue
            before = self._started.get(view.address)
            self._started[view.address] = view.look.start_time
            if before is not None and before != view.look.start_time:
                text = f"nsqd {view.address} was started, version {view.look.version}"
                events.append((STARTED, text, node(view.address), 0.0))

        def write() -> None:
            for event in events:
                self._recorder.note(*event)
            self._recorder.record(this.sum, this.nodes, this.now.at_s)

        await self._in_thread(write)

    def changed(self, text: str, name: Name) -> None:
        """Record a change that *text* describes, of the object *name*."""
        self._recorder.note(CHANGE, text, name)
