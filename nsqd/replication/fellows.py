"""Other keepers of one home: who they are, what they have said, and when one waits for another. No socket.

While their home is gone, keepers ask each other: each says what it has and what is finished there. The lower
keeper does not give out what the higher one has. A keeper that is not reached counts as absent: a message may
then come twice, which is better than never.
"""

import json
from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from nsqd.log.ranges import Ranges
from nsqd.replication.copies import Copies
from nsqd.replication.frames import Fellow
from nsqd.replication.holdings import Holdings
from nsqd.replication.ranks import Rank

FILE_NAME: Final = "fellows.json"
_S: Final = 1_000_000_000
# How long the others are given to answer before anything is given out here.
ASK_NS: Final = 2 * _S
# How long a lower keeper waits for a higher one that is about to give out, or says that the home is there.
WAIT_NS: Final = 30 * _S
# How long the word of another keeper counts, which is given once a second. So a keeper that fell silent, or
# came back without the copy and was never asked here, holds nothing back.
SAID_FOR_NS: Final = 10 * _S


class FellowStanding(IntEnum):
    """What a keeper does with a copy."""

    KEPT = 0
    # The home is gone, and the copy will be given out in a moment.
    SOON = 1
    HOME_IS_HERE = 2
    CARRIED = 3


@dataclass(frozen=True, slots=True)
class FellowHas:
    """One copy of another keeper."""

    appointment: int
    standing: FellowStanding
    holdings: Holdings = field(default_factory=Holdings)


@dataclass(slots=True)
class _Of:
    """What is known of the keepers of one home."""

    keepers: list[Fellow] = field(default_factory=list)
    said: dict[str, list[FellowHas]] = field(default_factory=dict)
    # When they said it.
    said_ns: dict[str, int] = field(default_factory=dict)
    # Those that were asked, whether they answered or not.
    asked: set[str] = field(default_factory=set)
    # Since when copies of it are given out here; 0 while they are not.
    began_ns: int = 0
    now_ns: int = 0


class KnownFellows:
    """See the module."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._homes: dict[bytes, _Of] = {}

    # --- who there is ---

    def look(self, identity: bytes, appointed: Iterable[Fellow]) -> None:
        """Read who keeps for this home. Raises OSError; a damaged note is ignored: duplicates may come.

        *appointed* are keepers that this node appointed in the home's place: they may have given out since.
        """
        if identity in self._homes:
            return
        known = _Of()
        with suppress(FileNotFoundError, ValueError, TypeError):
            known.keepers = [
                Fellow(int(number), str(address))
                for number, address in json.loads(self._copies.read(identity, FILE_NAME))
            ]
        known.keepers += appointed
        self._homes[identity] = known

    def known(self, identity: bytes) -> tuple[Fellow, ...]:
        """The keepers of this home."""
        found = self._homes.get(identity)
        return () if found is None else tuple(found.keepers)

    def note(self, identity: bytes, keepers: tuple[Fellow, ...]) -> None:
        """Note the keepers that the home has named. Raises OSError."""
        known = self._homes.setdefault(identity, _Of())
        if known.keepers != list(keepers):
            content = json.dumps([[one.number, one.address] for one in keepers]).encode()
            # Written first: if that fails, the home names them again, and they must count as news then.
            self._copies.note(identity, FILE_NAME, content)
            known.keepers = list(keepers)

    def others(self, identity: bytes, address: str) -> list[str]:
        """Addresses of the keepers of this home, except that one."""
        known = self._homes.get(identity)
        found = [] if known is None else [one.address for one in known.keepers if one.address != address]
        return list(dict.fromkeys(found))

    # --- what they have said ---

    def begin(self, identity: bytes, now_ns: int) -> None:
        """A copy of this home is given out from now on."""
        known = self._homes.setdefault(identity, _Of())
        known.began_ns = known.began_ns or now_ns
        known.now_ns = now_ns

    def end(self, identity: bytes) -> None:
        """The home is back: forget what was said, which will be out of date when the home goes again."""
        known = self._homes.get(identity)
        if known is not None:
            known.said, known.said_ns, known.asked, known.began_ns = {}, {}, set(), 0

    def time(self, identity: bytes, now_ns: int) -> None:
        """Set the time, and forget what was said long ago."""
        known = self._homes.get(identity)
        if known is not None:
            known.now_ns = now_ns
            for address in [one for one, at in known.said_ns.items() if now_ns - at > SAID_FOR_NS]:
                del known.said[address], known.said_ns[address]

    def told(self, identity: bytes, address: str, copies: list[FellowHas], now_ns: int) -> None:
        """Remember what another keeper has said that it has."""
        known = self._homes.setdefault(identity, _Of())
        known.said[address], known.said_ns[address] = copies, now_ns
        known.asked.add(address)

    def silent(self, identity: bytes, address: str) -> None:
        """Remember that another keeper cannot be reached."""
        known = self._homes.setdefault(identity, _Of())
        known.said.pop(address, None)
        known.said_ns.pop(address, None)
        known.asked.add(address)

    def holders(self, identity: bytes, topic: str) -> list[tuple[Rank, Ranges]]:
        """What others give out of a topic, with their ranks."""
        known = self._homes.get(identity)
        if known is None:
            return []
        return [
            (one.appointment, one.holdings.held[topic])
            for copies in known.said.values()
            for one in copies
            if one.standing is FellowStanding.CARRIED and topic in one.holdings.held
        ]

    def waits(self, identity: bytes, rank: Rank, from_here: Container[Rank] = ()) -> bool:
        """Whether a copy of that rank must wait: others were not heard yet, or are about to give out.

        Copies *from_here* were made by this node in the home's place; it does not wait for these.
        """
        known = self._homes.get(identity)
        if known is None:
            return False
        passed = known.now_ns - known.began_ns
        higher = {one.address for one in known.keepers if one.number > rank}
        if not higher <= known.asked and passed < ASK_NS:
            return True
        soon = any(
            one.appointment > rank
            and one.appointment not in from_here
            and one.standing in (FellowStanding.SOON, FellowStanding.HOME_IS_HERE)
            for copies in known.said.values()
            for one in copies
        )
        return soon and passed < WAIT_NS
