"""When the next file is started. Pure."""

from dataclasses import dataclass

from nsqclient.wire.durations import Duration
from nsqcore.durations import format_duration


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rules of one run; 0 disables a rule."""

    size: int = 0
    interval: Duration = 0

    def too_big(self, size: int) -> bool:
        return 0 < self.size < size

    def reason(self, name: str, name_now: str, age: Duration, size: int) -> str | None:
        """Why the file called *name* should not get the next message, or None when it should."""
        if name != name_now:
            return f"new filename {name_now}, rotating..."
        if 0 < self.interval < age:
            return f"{format_duration(age)} since last open, rotating..."
        if self.too_big(size):
            return self.size_reason(size)
        return None

    def size_reason(self, size: int) -> str:
        return f"currently {size} bytes (> {self.size}), rotating..."
