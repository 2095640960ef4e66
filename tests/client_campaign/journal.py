"""What one run has published, the outcomes, and the outcomes that no fault explains. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

# A killed nsqd may lose its answers of the last second, and a stalled line may hold an answer back as long.
SLACK_SECONDS = 3.0


@dataclass(slots=True)
class Handled:
    """One delivery to a handler."""

    nsqd: str
    message_id: bytes
    at: float


@dataclass(slots=True)
class Journal:
    """Numbers of messages, and the times of what happened to them."""

    submitted: dict[int, float] = field(default_factory=dict)
    confirmed: dict[int, float] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)
    handled: dict[str, dict[int, list[Handled]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    faults: list[float] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)  # the faults, by their kind
    never_ended: list[str] = field(default_factory=list)

    def fault(self, kind: str, *times: float) -> None:
        """Note a fault that lasted from the first to the last of *times*."""
        self.done[kind] += 1
        first, last = min(times), max(times)
        steps = int((last - first) / SLACK_SECONDS) + 1
        self.faults += [first + step * SLACK_SECONDS for step in range(steps)] + [last]

    def lost(self, channel: str) -> list[int]:
        """Return the messages that nsqd has confirmed and the channel's consumer never got."""
        return sorted(self.confirmed.keys() - self.handled[channel].keys())

    @property
    def is_all_handled(self) -> bool:
        return bool(self.handled) and not any(self.lost(channel) for channel in self.handled)

    def twice(self, channel: str) -> int:
        return sum(len(deliveries) - 1 for deliveries in self.handled[channel].values())

    def unexplained(self, channel: str) -> list[int]:
        """Return the messages that were handled twice without a fault that explains it."""
        return [
            number
            for number, deliveries in self.handled[channel].items()
            if len(deliveries) > 1 and not all(self._explained(number, deliveries))
        ]

    def _explained(self, number: int, deliveries: list[Handled]) -> Iterable[bool]:
        first = deliveries[0]
        for again in deliveries[1:]:
            if (again.nsqd, again.message_id) == (first.nsqd, first.message_id):
                yield self._was_fault(first.at, again.at)  # delivered again
            else:
                yield self._was_fault(self.submitted[number], self.confirmed.get(number, again.at))

    def _was_fault(self, first: float, last: float) -> bool:
        return any(first - SLACK_SECONDS <= at <= last + SLACK_SECONDS for at in self.faults)

    def violations(self) -> list[str]:
        found = list(self.never_ended)
        if open_ones := len(self.submitted) - len(self.confirmed) - self.failed.total():
            found.append(f"{open_ones} publishes without an outcome")
        for channel in ("loop", "threads"):
            if lost := self.lost(channel):
                found.append(f"{channel}: {len(lost)} lost after their OK, such as {lost[:3]}")
            if strange := self.unexplained(channel):
                found.append(
                    f"{channel}: {len(strange)} handled twice without a reason, such as {strange[:3]}"
                )
            if unknown := self.handled[channel].keys() - self.submitted.keys():
                found.append(f"{channel}: {len(unknown)} that no client has published")
        return found

    def __str__(self) -> str:
        twice = {channel: self.twice(channel) for channel in ("loop", "threads")}
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.done.items())) or "none"
        return (
            f"{len(self.submitted)} submitted, {len(self.confirmed)} confirmed, failed {dict(self.failed)};"
            f" handled twice {twice}; faults: {faults}"
        )
