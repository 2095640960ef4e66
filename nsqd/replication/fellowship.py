"""What keepers of one home say to each other, and what each concludes from it. No socket, no clock."""

from collections.abc import Callable

from nsqd.engine import facts
from nsqd.replication.carried_copy import CarriedCopy
from nsqd.replication.carrier import Carrier
from nsqd.replication.fellows import FellowHas, FellowStanding
from nsqd.replication.frames import AnyFrame, CopiedTopic, FellowCopy, FellowHello, Finished, Had, Told
from nsqd.replication.framing import in_parts
from nsqd.replication.ranks import HOME, Rank
from nsqd.replication.serving import CopyPhase


class Fellowship:
    """The copies of one node, in relation to those of other keepers."""

    def __init__(self, carrier: Carrier, address: str) -> None:
        """*address* is that of this node, as the homes know it."""
        self._carrier = carrier
        self._address = address

    def to_ask(self, now_ns: int) -> list[tuple[bytes, str]]:
        """Homes whose copies are given out here, and the addresses of their other keepers."""
        carrier = self._carrier
        homes = {one.identity: None for one in carrier if one.phase is CopyPhase.CARRIED}
        found = []
        for identity in homes:
            if not carrier.is_here(identity):
                carrier.fellows.time(identity, now_ns)
                # A wait may be over by now.
                carrier.allow(identity)
                others = carrier.fellows.others(identity, self._address)
                found += [(identity, address) for address in others]
        return found

    # --- what is said ---

    def says(self, identity: bytes, now_ns: int) -> list[AnyFrame]:
        """What another keeper of this home is told."""
        found: list[AnyFrame] = []
        for one in self._carrier.of(identity):
            found.append(FellowCopy(one.serving.appointment, self._standing(one, now_ns)))
            if one.phase is CopyPhase.CARRIED:
                found += self._holdings(one)
        found.append(Told())
        return found

    def _standing(self, one: CarriedCopy, now_ns: int) -> FellowStanding:
        if one.phase is CopyPhase.CARRIED:
            return FellowStanding.CARRIED
        if self._carrier.is_here(one.identity) or one.phase is CopyPhase.RETURNING:
            return FellowStanding.HOME_IS_HERE
        return FellowStanding.SOON if not one.troubles and now_ns >= one.again_ns else FellowStanding.KEPT

    def _holdings(self, one: CarriedCopy) -> list[AnyFrame]:
        found: list[AnyFrame] = []
        founded = [(name, topic) for name, topic in one.topics.items() if not topic.unfounded]
        for number, (name, topic) in enumerate(founded):
            found.append(CopiedTopic(number, name))
            # A node that is about to leave gives out nothing, so others need not leave anything to it.
            if not self._carrier.broker.leaving:
                found += [Had(number, part) for part in in_parts(self._carrier.readable(topic))]
            for channel, told in facts.all_facts(topic).items():
                parts = in_parts(told.finished)
                found += [Finished(number, channel, told.generation, part) for part in parts]
        return found

    def answers(self, clock: Callable[[], int]) -> Callable[[FellowHello, list[FellowHas]], list[AnyFrame]]:
        """The function that answers another keeper, which has said what it has."""

        def answer(hello: FellowHello, copies: list[FellowHas]) -> list[AnyFrame]:
            now_ns = clock()
            self.heard(hello.home, hello.address, copies, now_ns)
            return self.says(hello.home, now_ns)

        return answer

    # --- what is heard ---

    def heard(self, identity: bytes, address: str, copies: list[FellowHas], now_ns: int) -> None:
        """Another keeper of this home has said what it has: learn what is finished there."""
        carrier = self._carrier
        carrier.fellows.told(identity, address, copies, now_ns)
        for one in carrier.of(identity):
            if one.phase is not CopyPhase.CARRIED:
                continue
            for other in copies:
                for name, known in other.holdings.finished.items():
                    if name in one.topics:
                        higher = one.serving.appointment < other.appointment == self._highest(identity, name)
                        carrier.learn(one.topics[name], known, higher=higher)
        if not carrier.is_here(identity):
            carrier.allow(identity)

    def _highest(self, identity: bytes, name: str) -> Rank:
        """The rank whose channels count: the home's where it is here, or the highest that was reached.

        If two were believed in turn, all messages would be owed again each time.
        """
        if self._carrier.is_here(identity):
            return HOME
        return max((rank for rank, _ in self._carrier.fellows.holders(identity, name)), default=0)

    def silent(self, identity: bytes, address: str) -> None:
        """Another keeper cannot be reached: treat it as absent."""
        self._carrier.fellows.silent(identity, address)
        if not self._carrier.is_here(identity):
            self._carrier.allow(identity)
