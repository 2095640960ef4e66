"""One answer of ``GET /log/range``: the messages, where the next answer begins, and the gaps. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple, Self

import numpy as np

from pyspark_nsq.source.frames import Messages, decode_frames

_NEXT_HEADER: Final = "x-nsq-next-sequence"
_GAPS_HEADER: Final = "x-nsq-gaps"
# The reason of a gap whose numbers were never given to messages.
UNUSED: Final = "unused"
# The reason of a gap that every channel had finished. If the query's channel has not, it is "earlier".
COMPACTED: Final = "compacted"


class RangeGap(NamedTuple):
    """No message can be read in ``start <= sequence < end``."""

    start: int
    end: int
    why: str


class RangeAnswer(NamedTuple):
    """The messages and gaps of ``start <= sequence < following``."""

    messages: Messages
    start: int
    following: int
    gaps: tuple[RangeGap, ...]
    unaccounted: int
    """How many sequences belong neither to a message nor to a gap."""

    @classmethod
    def parse(
        cls, start: int, end: int, headers: Mapping[str, str], body: bytes, *, extended: bool = False
    ) -> Self:
        """Read the answer to a request for *start* to *end*. Raises ValueError if it is invalid.

        For an *extended* answer the headers of messages were requested.
        """
        named = {name.lower(): value for name, value in headers.items()}
        following = int(named.get(_NEXT_HEADER, ""))
        if not start < following <= end:
            raise ValueError(f"the answer to {start}-{end} continues at {following}")
        gaps = _parse_gaps(named.get(_GAPS_HEADER, ""))
        messages = decode_frames(body, extended=extended)
        sequences = messages.sequences
        count = len(sequences)
        if count and not (
            start <= sequences[0] and sequences[-1] < following and (np.diff(sequences) > 0).all()
        ):
            raise ValueError(f"the answer to {start}-{end} has other messages, or not in their order")
        unaccounted = following - start - count - sum(gap.end - gap.start for gap in gaps)
        if unaccounted < 0:
            raise ValueError(f"the answer to {start}-{end} has messages where it says that there are none")
        return cls(messages, start, following, gaps, unaccounted)

    @property
    def unused(self) -> int:
        """How many sequences were never given to messages, as nsqd says now."""
        return sum(gap.end - gap.start for gap in self.gaps if gap.why == UNUSED)

    def missing(self, lost: frozenset[str], ahead: int = 0) -> list[str]:
        """Describe missing messages: gaps with a reason in *lost*, and sequences that are not accounted for.

        Messages below *ahead* may be compacted.
        """
        named = [
            f"{gap.start} to {gap.end} ({gap.why})"
            for gap in self.gaps
            if gap.why in lost and not (gap.why == COMPACTED and gap.end <= ahead)
        ]
        if self.unaccounted:
            named.append(f"{self.unaccounted} of {self.start} to {self.following} (no reason given)")
        return named


def _parse_gaps(header: str) -> tuple[RangeGap, ...]:
    """Read ``start-end why, start-end why``. Raises ValueError."""
    found = []
    for item in header.split(", ") if header else ():
        numbers, why = item.split(" ")
        start, end = numbers.split("-")
        found.append(RangeGap(int(start), int(end), why))
    return tuple(found)
