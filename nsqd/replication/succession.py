"""Standing in for a home that does not come back: its highest keeper appoints keepers in its place. Pure.

The numbers go on where the home's ended, so the new copy is the highest everywhere. While the keeper that
stands in streams to it, it is a copy whose home is there. When that keeper is gone too, the copy is given out
like any other, and its own keeper stands in.
"""

from nsqd.engine import facts
from nsqd.replication.appointing import AppointmentsFile
from nsqd.replication.carried_copy import CarriedCopy
from nsqd.replication.carrier import Carrier
from nsqd.replication.choosing import Appointed
from nsqd.replication.frames import Fellow
from nsqd.replication.serving import CopyPhase


def begin(file: AppointmentsFile, copy: CarriedCopy, others: tuple[Fellow, ...], address: str) -> None:
    """Let keepers that are appointed from now on rank above this copy; the *others* kept the log before.

    The others are told that somebody stands in, and let go of what this copy has. *address* is that of this
    node.
    """
    known = file.appointments
    mine = copy.serving.appointment
    known.last = max(known.last, mine, *(one.number for one in others), 0)
    for one in [one for one in known.current if one.number <= mine]:
        known.dismiss(one)
    have = {(one.number, one.address) for one in (*known.current, *known.former)}
    known.former += [
        Appointed(one.number, one.address)
        for one in others
        if one.address != address and (one.number, one.address) not in have
    ]


def stands_in(carrier: Carrier, identity: bytes, now_ns: int, patience_ns: int) -> CarriedCopy | None:
    """The copy to be copied on from here; None while the home may be back, or another copy is the highest.

    A log that was handed over to this node is without a home at once.
    """
    copies = carrier.of(identity)
    if not copies or carrier.is_here(identity) or carrier.was_given_away(identity):
        return None
    one = copies[0]
    if one.phase is not CopyPhase.CARRIED or one.leaves or one.needless or one.troubles:
        return None
    if identity not in carrier.inherited and now_ns - one.carried_ns < patience_ns:
        return None
    rank = one.serving.appointment
    if carrier.waits(one):
        return None
    if any(topic.unfounded for topic in one.topics.values()):
        # The new copy would come from one that was never whole.
        return None
    for name in one.topics:
        if any(other > rank for other, _ in carrier.fellows.holders(identity, name)):
            return None
    owed = any(facts.owed_by_any(topic) for topic in one.topics.values())
    return one if owed else None
