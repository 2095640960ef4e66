"""A prediction and the measured value."""

from dataclasses import dataclass
from typing import Final

HEADER: Final = "| | predicted | measured | off |\n|---|--:|--:|--:|"


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    predicted: float
    measured: float

    @property
    def off(self) -> float:
        """Return the error of the prediction as a share of the measured value."""
        return self.predicted / self.measured - 1 if self.measured else 0.0

    def line(self) -> str:
        return f"| {self.what} | {_short(self.predicted)} | {_short(self.measured)} | {self.off:+.0%} |"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
