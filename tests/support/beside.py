"""The proofs of what is the same, run with the programs of the original in place of ours.

docs/compatibility.md names a test for each behaviour. Where it says "same", that test must pass with the
original as well, or the word is wrong. With ``NSQ_UNDER_TEST=original`` the tests start the original's
programs, which ``NSQ_GO_BIN`` (or PATH) has; only the proofs of such rows run then, and those of
:data:`DIFFERS` must fail.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

OURS: Final = os.environ.get("NSQ_UNDER_TEST") != "original"
"""False where a test has the original before it: what only ours has is not asked for then."""

_PAGE: Final = Path(__file__).parents[2] / "docs" / "compatibility.md"
_ROW: Final = re.compile(r"\| (.+?) \| (.+?) \| (.*?) ?\|")
_PROOF: Final = re.compile(r"`(test_\w+)`")
_SAME: Final = re.compile(r"\bsame\b")


class Row(NamedTuple):
    """A behaviour that is said to be the original's."""

    section: str
    behaviour: str
    proofs: tuple[str, ...]


def same_rows() -> list[Row]:
    """Every row of the page that says "same"."""
    found, section = [], ""
    for line in _PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            section = line.strip("# ")
        elif (row := _ROW.fullmatch(line)) and _SAME.search(row[2]):
            found.append(Row(section, row[1], tuple(_PROOF.findall(row[3]))))
    return found


def proofs() -> frozenset[str]:
    """The tests that such rows name."""
    return frozenset(name for row in same_rows() for name in row.proofs)


ALONE: Final[dict[str, str]] = {
    "Headers, as youzan's NSQ has them": "another project's nsqd has them, of which there is no program here",
    "The Python client": "go-nsq is a library; the client's own tests run with the original's nsqd as well",
    "`--enable-experiment": "of its master branch; the programs are those of the release",
    "`zone_local_msg_count`": "of its master branch",
    "other experiments": "of its master branch",
}
"""Sections, and beginnings of rows, of which the original has no program, and why."""

DIFFERS: Final[dict[str, str]] = {}
"""Tests of such rows, or single cases of them, that the original does not pass, and why ours does."""


def difference(test: str) -> str | None:
    """Why the original does not pass this test, or None when it must."""
    return DIFFERS.get(test) or DIFFERS.get(test.partition("[")[0])
